def test_smoke(planted, purged, place, conn):
    for i in range(1, 11):
        planted.record(i, i % 3)
    conn.execute("select setval('partbox.record_id_seq', 10)")
    planted.consume(10)
    print(purged())
    print(list(place.iterdir()), planted.left(), planted.meta())
    assert planted.left() == []
