"""The command line. It stands above every other layer and loads them only when a command runs, so that help is quick.

app          the commands put together
serving      coordinator, agent, invite       runs    run start, list, show, watch, cancel, resume, export
local        methods, contract, simulate, demo, version
options      options that several commands share
guard        errors as sentences and exit codes
client       the coordinator's HTTP door, from the other side     following  a run, watched until it ends
yamlines     YAML that remembers its lines    experiments  experiment files, and errors with their line
simulating   sites of a `data:` section       exporting    a run's final state as one file
dealing      data deal: folders of a deal     dealtsites   sites of a `deal:` section, from one folder
links        links plan: who should teach whom, without a run
bench        a grid of runs: benchgrid (its cells), benchchecks, benchdata (digests), benching (the runs), benchscores,
             benchtables, benchfigures (what they have come to)
tables       results for people               watching     progress for people             logs  the log of long-lived commands
"""
