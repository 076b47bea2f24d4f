"""The words of the verification's section: ``key = English = Chinese`` lines, part of ``words.WORDS``."""

from __future__ import annotations

VERIFICATION = """
backend = Backend = 后端
basis_derived = derived = 推算
basis_measured = measured = 实测
basis_published = published = 厂商公布
bus_bandwidth = Bus bandwidth, GB/s = 总线带宽（GB/s）
bus_bandwidth_text = One mark per measurement; the shaded bar is what the link should reach. = 每个标记是一次测量，阴影条是该链路应达到的范围。
bw_above = faster than expected = 高于预期
bw_below = slower than expected = 低于预期
bw_in-band = as expected = 符合预期
bw_message-too-small = message too small to tell = 消息太小，无法判断
bw_no-expectation = no expectation = 没有预期值
changed = Changed = 改变的因素
control = control = 对照
default_route = default route = 默认路由
details = details = 详情
differs = Differs from the failure = 与故障现场的不同
down = down = 未启用
errno = Error = 错误码
expected = Expected = 预期
fails = fails = 失败
findings = What stands out = 异常之处
free = {n} free = 空闲 {n}
from = From = 从
interface = Interface = 网络接口
interfaces = Interfaces = 网络接口
last_call = last call = 最后一次调用
limits = Limits = 限制
matrix_left_out = {n} hosts without a failing path are left out = 省略了 {n} 台没有问题路径的主机
message = Collective = 集合操作
narrowed_group = Narrowed down to the group {who} in {n} further runs; no smaller part of it fails alone. = 又运行 {n} 次后缩小到这一组：{who}；其中更小的部分单独运行不会失败。
narrowed_one = Narrowed down to {who} in {n} further runs. = 又运行 {n} 次后缩小到 {who}。
narrowed_pair = Narrowed down to the pair {who} in {n} further runs. = 又运行 {n} 次后缩小到这一对：{who}。
no_path = not probed = 未探测
not-run = not run = 未运行
not-testable = not testable by a collective = 无法用集合操作验证
not_verified_text = No experiment has run on the hardware: the verdict rests on the log alone. = 尚未在硬件上做实验：结论只依据日志。
notices = Slower than expected = 低于预期
notices_text = Worth a look; slowness alone is no failure. = 值得检查；仅仅是慢并不算失败。
other_suspects = The other suspects = 其他可能原因的验证
outcome = Outcome = 结果
passes = passes = 通过
path_delayed = delayed = 延迟高
path_failed = failed = 失败
path_large-packets-lost = large packets lost = 大包丢失
path_lossy = lossy = 丢包
path_no-data = no data gets through = 数据不通
path_no-route = no route = 无路由
path_prohibited = prohibited = 被禁止
path_reachable = reachable = 可达
path_refused = refused = 被拒绝
path_reset = reset = 被重置
path_silent = no answer = 无应答
paths = Paths that fail or work badly = 不通或质量差的路径
port_of_log = port of the log = 日志中的端口
ranks_on = ranks {ranks} on {hosts} = rank {ranks}，位于 {hosts}
reachability = Reachability between the hosts = 主机之间的可达性
reachability_text = Each row is where the packets start, each column where they go. = 行为起点，列为终点。
reported = What the ranks reported = 各 rank 报告的错误
run = Run = 运行
run_crashed = crashed = 崩溃
run_error = error = 报错
run_hung = hung = 卡住
run_not-run = not run = 未运行
run_passed = passed = 通过
run_wrong-data = wrong data = 数据错误
runs = The runs = 各次运行
seconds = Seconds = 秒
sent_again = {n} segments sent again = 重传 {n} 个报文段
shows = What it shows = 说明了什么
stage_device = choosing the GPU = 选择 GPU
stage_done = timed iterations = 计时迭代
stage_end = to the end = 全部完成
stage_entered = before the collective = 进入集合操作之前
stage_group = connecting with one another = 彼此建立连接
stage_imported = importing torch = 导入 torch
stage_start = starting = 启动
stage_store = meeting at the store = 在 store 会合
stage_warm = first collective = 首次集合操作
to = To = 到
to_verify = This reruns the failed collective on the hardware at hand and says whether that confirms the diagnosis: = 以下命令在现有硬件上重新运行失败的集合操作，判断是否证实诊断：
took = {n} s in all = 共 {n} 秒
treatments = With one thing changed = 只改变一个因素
unlimited = unlimited = 不限
up_to = up to {n} Gbit/s = 速率 {n} Gbit/s
"""
