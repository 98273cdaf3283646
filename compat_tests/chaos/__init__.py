"""The real broker process under load, killed, cut off its power and given failing disks: what was acknowledged stays.

The twin filesystem of `engine/files/twin.py` reaches more states; what it assumes of Linux, ext4 and stock producers is
shown here. `KAFKAWIRE_CHAOS_KILLS`, `KAFKAWIRE_CHAOS_CUTS` and `KAFKAWIRE_CHAOS_SEED` set the size and the seed.
Transactions go through a network with faults, too (`faulty_proxy.py`): no request that comes late is taken for another.
"""
