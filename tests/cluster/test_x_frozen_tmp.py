import os, signal, time, psutil
from waiting import eventually
from test_scrapes import start, publish, settled, Watched, FAST  # noqa

def test_frozen(cluster, start, own_server):
    node = start("one", dsn=own_server.dsn)
    publish(own_server.dsn, "Good", 10)
    settled(node, "delivered_total", 10, handler="good")
    pm = own_server.server._postmaster()
    procs = [psutil.Process(pm), *psutil.Process(pm).children(recursive=True)]
    for p in procs: p.suspend()
    try:
        t = time.monotonic(); seen = []
        while time.monotonic() - t < 36:
            s = time.monotonic()
            a = node.probe("/healthz"); b = node.probe("/readyz")
            seen.append((round(time.monotonic()-t,1), a[0], b[0], b[1]["problems"], round(time.monotonic()-s,2)))
            time.sleep(3)
        for x in seen: print(x)
        node.node.send(signal.SIGTERM); time.sleep(1.5)
        print("alive after one", node.node.process.poll())
        at = time.monotonic(); node.node.send(signal.SIGTERM)
        code = node.node.wait(); print("ended", code, time.monotonic() - at, node.node.family())
        print(node.node.log[-3000:])
    finally:
        for p in procs:
            if p.is_running(): p.resume()
    assert all(x[1] == 200 for x in seen)
