"""What a link shows: as of when the response before was made, and nothing of another link."""

from kafkawire.replication.followers import Followers
from kafkawire.wire.connection import ConnectionInfo


def test_a_fetch_is_as_old_as_the_response_before_it_on_its_own_link() -> None:
    now_ms = 5
    followers = Followers(lambda: now_ms)
    links = [ConnectionInfo(listener_name="PLAINTEXT", peer_host="h", local_address="a") for _ in range(2)]
    assert followers.fetched(links[0]) < 0
    followers.responded(links[0])
    now_ms = 9_000
    assert followers.fetched(links[0]) == 5
    assert followers.fetched(links[1]) < 0
    followers.responded(links[0])
    assert followers.fetched(links[0]) == 9_000
