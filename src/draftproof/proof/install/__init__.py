"""An installed engine, here, in another environment, in a plain folder or on other hosts: is it whole, and which of
DFlash's facts does the code that would run hold? ``hosts`` sends the probe, ``facts`` turns its report into a case,
the rules of ``proof.rules.install*`` judge it, ``closing`` answers the operator."""
