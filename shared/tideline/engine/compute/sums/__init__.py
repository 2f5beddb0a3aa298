"""Secure sums around a method's plan: a phase whose fold needs a sum alone becomes one of which nobody sees a single value.

numbers    a site's values as whole numbers in a row, and their sum as values again
exchanges  the four exchanges beside that of the values: keys, shares, survivors, unmasking
phases     a method whose phases are summed

No method knows of them beyond `Phase.sums`. Records are those of `tideline.learning.around.sums`, the protocol is
`tideline.secure`. Agents play a site's half of it (`tideline.engine.site.summing`), so that no trainer ever has a key.
"""
