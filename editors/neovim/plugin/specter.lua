-- Only the command and the <Plug> keys exist after this; `require('specter').setup{}` starts the rest.
require('specter.commands').create()
require('specter.keys').plugs()
