"""The command line. It stands above every other layer and loads them only when a command runs, so that help is quick.

app      the commands put together             serving      coordinator, agent, doctor, invite
options  options that several commands share   guard        errors as sentences, and exit codes
tables   results as tables                     coordinator  commands that call a coordinator
local    methods, contract, simulate, bench, demo, tls, version
site     commands of a site's owner: data, site
"""
