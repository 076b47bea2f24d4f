"""The symbols of the report's charts: state and role are told by shape and word as well as by colour."""

from __future__ import annotations

#: Width of every chart in pixels of its own coordinates.
WIDTH = 960
_FAR = 100_000

#: State -> shape; suspects have pointed or open shapes, victims plain ones.
SHAPES = {
    "root": "diamond",
    "missing": "ring",
    "behind": "triangle",
    "dead": "cross",
    "error": "square",
    "entered": "bar",
    "ok": "dot",
    "unknown": "dash",
}
#: The states of ranks that may have started it.
SUSPECTS = ("root", "missing", "behind")
ROLE_SHAPES = {"root": "diamond", "cascade": "dot", "context": "dash", "progress": "bar"}


def pixel(place: float) -> int:
    """Return the nearest pixel of a chart; places far outside, and NaN, are clamped."""
    if place != place:
        return 0
    return round(min(max(place, -_FAR), _FAR))


def shape(kind: str, x: int, y: int, r: int) -> str:
    """Return the SVG path of a mark of half-width ``r`` around a point."""
    half, thin = max(r // 2, 1), max(r // 3, 1)
    if kind == "diamond":
        return f"M{x} {y - r}l{r} {r}l{-r} {r}l{-r} {-r}z"
    if kind == "triangle":
        return f"M{x} {y - r}l{r} {2 * r}h{-2 * r}z"
    if kind == "square":
        return f"M{x - r} {y - r}h{2 * r}v{2 * r}h{-2 * r}z"
    if kind == "bar":
        return f"M{x - half} {y - r}h{2 * half}v{2 * r}h{-2 * half}z"
    if kind == "dash":
        return f"M{x - r} {y - thin}h{2 * r}v{2 * thin}h{-2 * r}z"
    if kind == "cross":
        arm = f"l{thin} {-thin}l{r - thin} {r - thin}l{r - thin} {thin - r}l{thin} {thin}"
        back = f"l{thin - r} {r - thin}l{r - thin} {r - thin}l{-thin} {thin}l{thin - r} {thin - r}"
        return f"M{x - r} {y - r + thin}{arm}{back}l{thin - r} {r - thin}l{-thin} {-thin}l{r - thin} {thin - r}z"
    circle = f"M{x - r} {y}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    if kind == "ring":
        inner = max(r - thin, 1)
        return circle + f"M{x - inner} {y}a{inner} {inner} 0 1 1 {2 * inner} 0a{inner} {inner} 0 1 1 {-2 * inner} 0z"
    return circle
