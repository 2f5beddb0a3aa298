import json,sys,torch
from contextlib import closing
from tests.synthetic import *
import tests.synthetic as s
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.algorithms import METHODS
from tideline.learning.formats.holdings import Holdings
from tideline.cli.tables import result_tables, show
from tideline.client.watching import Tally
from tideline.core.run import World
def opened(i):
    def open_(world, role):
        r = s.rows(i, world)
        return Holdings(r.train, r.held_out)
    return SimSite(open_)
sites={n: opened(i) for i,n in enumerate(("anna","bert","carl"))}
for method, sel in (("fedavg","auroc"),("fedavg","ece"),("fada","entropy"),("fada","accuracy")):
    given=experiment(method, {"anna":"source","bert":"source","carl":"target"})|{"selection":sel}
    with closing(Federation(METHODS, sites)) as f:
        t=Tally()
        def watch(e):
            for l in t.event({"kind":e.kind,"data":dict(e.data),"seq":0}): print("  ",l)
        r=f.run(f.start(given),watch)
    print(method,sel,r["status"],r["cause"],r["selection"],r["notes"])
    print(json.dumps(r["scores"])[:300]); 
    for x in result_tables(r): show(x)
    from tideline.report.page import write_report
    from pathlib import Path
    write_report(json.loads(json.dumps(r)), Path("/tmp/wt/spill/scores/x.html"))
