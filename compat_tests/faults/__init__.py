"""The real broker process under load, with kills, power cuts and failing disks: no acknowledged record may be lost.

The simulated filesystem of `engine/testing/simulated_disk.py` reaches more states. These tests show that its
assumptions about Linux, ext4 and stock producers hold. `KAFKAWIRE_CHAOS_KILLS`, `KAFKAWIRE_CHAOS_CUTS` and
`KAFKAWIRE_CHAOS_SEED` set the size and the seed. Transactions also go through a network with faults
(`faulty_proxy.py`): a late request must not be taken for another one.
"""
