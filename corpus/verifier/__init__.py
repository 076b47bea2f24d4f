"""The verifier's own proof: faulty worlds made for real, and whether the verifier finds what is wrong with them."""
