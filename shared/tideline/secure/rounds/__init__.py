"""The exchanges of a secure sum, without a network: values in, values out.

terms        what is summed, by whom, at which place of a run; how a site signs, and whose signatures it believes
messages     what sites and the coordinator send each other; forms: their files
pairs        which masks a site's values are under, and how its shares are marked
notebook     what a site writes down before it answers
site         a site's half: each state has the one call that may come next
coordinator  the other half

    site                                   coordinator
    advertise(terms) -> Keyed, Advert
                                           gathered(adverts) -> Roll
    Keyed.share(roll) -> Sharing, parcels
                                           delivered(parcels) -> Delivered
    Sharing.mask(delivery) -> Sent, Masked
                                           Delivered.summed(masked) -> Summed
    Sent.agree(survivors) -> Agreed, Agreement
                                           Summed.agreed(agreements) -> Agreements
    Agreed.unmask(agreements) -> Unmasked
                                           Summed.opened(unmasked) -> Opened
"""
