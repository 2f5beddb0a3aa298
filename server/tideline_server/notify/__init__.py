"""Sends notices: signed webhooks and e-mail, to addresses to which the operator of this coordinator lets them go."""
