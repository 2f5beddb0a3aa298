"""Secure sums: the coordinator gets the sum of what sites send, and nothing else of it. No run uses them yet.

fixed_point  floats as whole numbers whose sum cannot wrap
masks        the numbers of a seed, added to and taken from arrays
shamir       a secret in shares, of which so many make it again
graph        who shares masks with whom
keys         what a site draws for one round, all from one root
rounds       the exchanges of a round, at a site and at the coordinator

The protocol is that of Bonawitz et al. (CCS 2017, eprint 2017/281), on the graph of Bell et al. (CCS 2020, eprint 2020/704).
"""
