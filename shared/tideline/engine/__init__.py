"""The kernel: what a round is, who keeps what, and the ports to the world. Knows no method and no network.

rows        the facts that the journal keeps
ports       what the kernel needs from outside: journal, parts, link, vault, pool, bell, clock
progress    when a round is ready (pure)
advance     enter and close: ask, tell, and the cursor (pure)
compute        turns of the coordinator in numbers: decode, advance, encode
stepper     a client's step in numbers: decode, run, encode
desk        what agents ask of the coordinator        office   what people ask of it
conductor   moves runs forward                        agent    lives an order's life at a site
memory      in-process adapters                       simulate the whole stack in one process
memory_...  the journal in this process               entries  what every journal writes of a round and of a reply
keys        API keys, as they are kept                keyring  whose key it is, and what its holder may do
experiment  what a person writes                      result   what a person reads
"""
