--- The server's life, the commands, and what goes wrong with a message and a working editor.
local helpers = require('child')
local fake, answer, requests = helpers.fake, helpers.answer, helpers.requests

--- The editor does what it should without us.
local function works(nvim)
  nvim:type('ggShello<Tab>x<Esc>')
  equal(nvim:lines()[1], 'hello\tx')
  equal(nvim:lua([[return vim.v.errmsg]]), '')
end

local function start(nvim, options)
  nvim:lua([[require('specter').setup(...)]], options)
  nvim:edit({ '' })
end

test('no server', function(nvim)
  start(nvim, { cmd = { 'no-such-specter', 'serve' } })
  nvim:message('no command `no-such-specter`')
  works(nvim)
  nvim:edit({ '' })
  works(nvim)
  equal(#nvim:messages(), 1, 'said once')
end)

test('a server without its Python', function(nvim)
  local script = vim.fn.tempname()
  vim.fn.writefile({ '#!/no/such/python' }, script)
  vim.fn.setfperm(script, 'rwxr-xr-x')
  start(nvim, { cmd = { script, 'serve' } })
  nvim:message('cannot be run')
  works(nvim)
end)

test('a server that dies at start', function(nvim)
  start(nvim, { cmd = { 'sh', '-c', 'echo no torch >&2; exit 3' } })
  nvim:message('the server has ended (exit code 3)')
  works(nvim)
  equal(#nvim:messages(), 1)
  nvim:type(':Specter log<CR>')
  equal(nvim:lua([[return vim.fn.search('no torch', 'bnw') > 0]]), true, 'the log holds its last words')
end)

test('a server that never answers', function(nvim)
  start(nvim, { cmd = { 'sleep', '60' }, start_timeout_ms = 300 })
  works(nvim)
  nvim:message('does not answer')
  works(nvim)
  equal(#nvim:messages(), 1)
end)

test('nothing to connect to', function(nvim)
  nvim:lua([[require('specter').setup({ cmd = vim.lsp.rpc.connect('127.0.0.1', 1), start_timeout_ms = 300 })]])
  nvim:edit({ '' })
  works(nvim)
  nvim:message('the server that `cmd` connects to does not answer')
  works(nvim)
  nvim:lua([[vim.cmd.checkhealth('specter')]])
  equal(nvim:lua([[return vim.fn.search('`cmd` is a function', 'nw') > 0]]), true)
end)

test('a program that is no server', function(nvim)
  start(nvim, { cmd = { 'sh', '-c', 'echo hello; sleep 60' }, start_timeout_ms = 500 })
  works(nvim)
  nvim:message('Specter: ')
  works(nvim)
end)

test('a server of another version', function(nvim)
  nvim:lua([[Fake = require('fake_server') Fake.info.version = '0.0.9' Fake.install()]])
  nvim:edit({ '' })
  nvim:message('server version 0.0.9 is too old')
  works(nvim)
  equal(nvim:lua([[return Fake.count('textDocument/inlineCompletion')]]), 0)
end)

test('another language server', function(nvim)
  nvim:lua([[Fake = require('fake_server') Fake.info = { name = 'pylsp', version = '9' } Fake.install()]])
  nvim:edit({ '' })
  nvim:message('is no Specter server')
  works(nvim)
end)

test('a server that dies later, and a restart', function(nvim)
  fake(nvim, { '' })
  nvim:type('ia')
  answer(nvim, 'b')
  nvim:lua([[Fake.exit(1)]])
  nvim:message('the server has ended (exit code 1)')
  equal(nvim:screen(), { 'a' })
  nvim:type('<Esc>:Specter restart<CR>')
  eventually(function()
    return nvim:lua([[return Fake.count('textDocument/didOpen') == 2]])
  end, 'the second didOpen')
  nvim:type('A')
  answer(nvim, 'c')
  equal(nvim:screen()[1], 'ac')
end)

test('restart of a server that runs', function(nvim)
  fake(nvim, { '' })
  nvim:type(':Specter restart<CR>')
  eventually(function()
    return nvim:lua([[return Fake.count('initialize') == 2 and Fake.count('textDocument/didOpen') == 2]])
  end, 'the second didOpen')
  equal(nvim:messages(), {})
end)

test('a file too large', function(nvim)
  nvim:lua([[Fake = require('fake_server') Fake.install({ max_file_size = 1000 })]])
  local name = vim.fn.tempname()
  vim.fn.writefile({ ('x'):rep(2000) }, name)
  nvim:lua([[vim.cmd.edit(...)]], name)
  nvim:message('more than max_file_size')
  equal(nvim:lua([[return Fake.count('initialize')]]), 0)
  nvim:type('<Cmd>edit!<CR>O')
  nvim:type('a<Esc>')
  equal(nvim:lines()[1], 'a')
  equal(#nvim:messages(), 1)
end)

test('options that do not exist or are of a wrong type', function(nvim)
  fake(nvim, { '' }, { keymaps = {}, max_file_size = 'big', keys = { acept = '<Tab>', next = false } })
  local messages = nvim:messages()
  table.sort(messages)
  equal(messages, {
    'Specter: option `max_file_size`: expected a number, got a string',
    'Specter: there is no option `keymaps`; see :help specter-options',
    'Specter: there is no option `keys.acept`; see :help specter-options',
  })
  nvim:type('ia')
  answer(nvim, 'b')
  nvim:type('<Tab>')
  equal(nvim:lines(), { 'ab' })
end)

test('a word that is no command', function(nvim)
  fake(nvim, { '' })
  nvim:type(':Specter stauts<CR>')
  nvim:message('there is no :Specter stauts')
end)

test('words complete', function(nvim)
  local function completed(line)
    return nvim:lua([[return vim.fn.getcompletion(..., 'cmdline')]], line)
  end
  equal(completed('Specter '), { 'context', 'disable', 'enable', 'log', 'pair', 'restart', 'status' })
  equal(completed('Specter disable '), { 'buffer' })
end)

test('disable and enable', function(nvim)
  fake(nvim, { '' })
  nvim:type('ia')
  answer(nvim, 'b')
  nvim:type('<Cmd>Specter disable<CR>')
  equal(nvim:screen(), { 'a' })
  equal(nvim:lua([[return Fake.last('workspace/didChangeConfiguration').settings.specter.enabled]]), false)
  local before = requests(nvim)
  nvim:type('c')
  equal(requests(nvim), before)
  nvim:type('<Cmd>Specter enable<CR>d')
  equal(nvim:lua([[return Fake.last('workspace/didChangeConfiguration').settings.specter.enabled]]), true)
  answer(nvim, 'e')
  equal(nvim:screen(), { 'acde' })
end)

test('disable in one buffer', function(nvim)
  fake(nvim, { '' })
  nvim:type(':Specter disable buffer<CR>ia')
  equal(requests(nvim), 0)
  equal(nvim:lua([[return require('specter').statusline()]]), 'specter ○')
  nvim:type('<Esc>')
  nvim:edit({ '' })
  nvim:type('ia')
  equal(requests(nvim), 1)
end)

test('disabled from the start, nothing is started', function(nvim)
  nvim:lua([[Fake = require('fake_server') Fake.install({ settings = { enabled = false } })]])
  nvim:edit({ '' })
  nvim:type('ia')
  equal(nvim:lua([[return #Fake.log]]), 0)
  nvim:type('<Cmd>Specter enable<CR>')
  eventually(function()
    return nvim:lua([[return Fake.count('textDocument/didOpen') == 1]])
  end, 'didOpen')
end)

test('status, context and pair', function(nvim)
  fake(nvim, { 'x = 1' })
  nvim:lua([[
    Fake.say('specter/status', { state = 'ready', message = '', pair = 'embedded', device = 'cpu',
      tokensPerSecond = 123.4, acceptance = 0.71 })
    Fake.answers['specter/stats'] = { requests = 5, completions = 3, cancelled = 1, superseded = 1, shown = 3,
      accepted = 2, partlyAccepted = 0, rejected = 1, last = { ttft_ms = 31.2, total_ms = 80 } }
    Fake.answers['specter/context'] = { prompt = '<pre>x = 1', prefix = 'x = 1', suffix = '', tokens = 4,
      snippets = { { uri = 'file:///b.py', text = 'y = 2' } } }
  ]])
  nvim:type(':Specter<CR>')
  eventually(function()
    return nvim:lines()[1]:find('^Specter 0.1.0: ready')
  end, 'the status')
  local text = table.concat(nvim:lines(), '\n')
  for _, part in ipairs({ 'embedded on cpu', '123 tokens/s, 71 %', '5: 3 with', '2 accepted', '31 ms' }) do
    equal(text:find(part, 1, true) ~= nil, true, part .. ' in\n' .. text)
  end
  nvim:type('q')
  nvim:type(':Specter context<CR>')
  eventually(function()
    return nvim:lines()[1]:find('4 tokens')
  end, 'the context')
  equal(vim.list_slice(nvim:lines(), 3), { '--- from file:///b.py', 'y = 2', '--- the prompt', '<pre>x = 1' })
  nvim:type('q:Specter pair qwen2.5-coder-7b<CR>')
  equal(nvim:lua([[return Fake.last('workspace/didChangeConfiguration').settings.specter.pair]]), 'qwen2.5-coder-7b')
end)

test('context of an excluded file', function(nvim)
  fake(nvim, { 'x = 1' })
  nvim:lua([[Fake.answers['specter/context'] = { excluded = true }]])
  nvim:type(':Specter context<CR>')
  eventually(function()
    return nvim:lines()[1]:find('excluded', 1, true)
  end, 'the word')
end)

test('an error of the engine is said once', function(nvim)
  fake(nvim, { '' })
  nvim:lua([[
    Fake.say('specter/status', { state = 'error', message = 'out of memory' })
    Fake.say('specter/status', { state = 'error', message = 'out of memory' })
  ]])
  nvim:message('out of memory')
  equal(#nvim:messages(), 1)
  equal(nvim:lua([[return require('specter').statusline()]]), 'specter ✗ error')
end)

test('fifty files', function(nvim)
  fake(nvim, { '' })
  for number = 2, 50 do
    nvim:edit({ '' }, ('-%d.py'):format(number))
  end
  equal(nvim:lua([[return { Fake.count('textDocument/didOpen'), Fake.count('initialize') }]]), { 50, 1 })
  nvim:type('ia')
  answer(nvim, 'b')
  equal(nvim:screen()[1], 'ab')
end)

--- What the server knows of documents: uri → text, as didOpen, didChange and didClose say.
local function documents(nvim)
  nvim:type('')
  return nvim:lua([[
    local open = {}
    for _, message in ipairs(Fake.log) do
      local document = message.params.textDocument
      if message.method == 'textDocument/didOpen' then
        assert(not open[document.uri], 'opened twice: ' .. document.uri)
        open[document.uri] = document.languageId
      elseif message.method == 'textDocument/didChange' then
        assert(open[document.uri], 'not open: ' .. document.uri)
      elseif message.method == 'textDocument/didClose' then
        open[document.uri] = nil
      end
    end
    return next(open) and open or vim.empty_dict()
  ]])
end

test('a file gets its language later', function(nvim)
  fake(nvim, { '' })
  nvim:lua([[vim.bo.filetype = 'lua']])
  nvim:type('')
  equal(nvim:lua([[return Fake.last('textDocument/didOpen').textDocument.languageId]]), 'lua')
  equal(nvim:lua([[return { Fake.count('textDocument/didOpen'), Fake.count('textDocument/didClose') }]]), { 2, 1 })
end)

test('a buffer without a name is a document once someone writes in it', function(nvim)
  nvim:lua([[Fake = require('fake_server') Fake.install()]])
  equal(nvim:lua([[return #Fake.log]]), 0, 'the server is not started for an empty Neovim')
  nvim:type('ia')
  answer(nvim, 'bc')
  equal(nvim:screen(), { 'abc' })
  equal(vim.tbl_keys(documents(nvim)), { 'untitled:Untitled-1' })
  nvim:type('b')
  equal(nvim:screen(), { 'abc' })
  nvim:type('<Tab>')
  equal(nvim:lines(), { 'abc' })
end)

test('buffers without a name are not taken for each other', function(nvim)
  nvim:lua([[Fake = require('fake_server') Fake.install()]])
  nvim:type('ia<Esc>:enew!<CR>')
  nvim:type('ib')
  local second = nvim:lua([[return vim.api.nvim_get_current_buf()]])
  equal(vim.tbl_keys(documents(nvim)), { 'untitled:Untitled-' .. second })
  equal(nvim:lua([[return Fake.last('textDocument/didOpen').textDocument.text]]):sub(1, 1), '\n')
  nvim:type('<Esc>:1buffer!<CR>Ac')
  equal(vim.tbl_keys(documents(nvim)), { 'untitled:Untitled-1' })
  equal(nvim:lua([[return Fake.last('textDocument/didOpen').textDocument.text]]), 'a\n')
  nvim:type('<Esc>:bwipe!<CR>')
  equal(documents(nvim), {})
end)

for how, command in pairs({ write = 'write ', file = 'file ', saveas = 'saveas ' }) do
  test('a buffer gets its name: :' .. how, function(nvim)
    nvim:lua([[Fake = require('fake_server') Fake.install()]])
    nvim:type('ia<Esc>')
    local name = vim.fn.tempname() .. '.txt'
    nvim:type(':' .. command .. name .. '<CR>')
    equal(vim.tbl_keys(documents(nvim)), { vim.uri_from_fname(name) })
    nvim:type('ab')
    answer(nvim, 'c')
    equal(nvim:screen()[1], 'abc')
    equal(vim.tbl_keys(documents(nvim)), { vim.uri_from_fname(name) })
  end)
end

test('settings go to the server', function(nvim)
  fake(nvim, { '' }, { settings = { pair = 'embedded', context = { maxSnippets = 2 } } })
  equal(nvim:lua([[return Fake.last('workspace/didChangeConfiguration').settings.specter]]), {
    pair = 'embedded',
    context = { maxSnippets = 2 },
  })
end)

test(':checkhealth', function(nvim)
  fake(nvim, { '' })
  nvim:type(':checkhealth specter<CR>')
  local text = eventually(function()
    local joined = table.concat(nvim:lines(), '\n')
    return joined:find('it runs, version 0.1.0', 1, true) and joined
  end, 'the report')
  equal(text:find('ERROR', 1, true), nil, text)
  equal(text:find('accept: <Tab>', 1, true) ~= nil, true, text)
end)

test(':checkhealth without a server', function(nvim)
  start(nvim, { cmd = { 'no-such-specter' } })
  nvim:type(':checkhealth specter<CR>')
  eventually(function()
    local joined = table.concat(nvim:lines(), '\n')
    return joined:find('pipx install .', 1, true) and joined:find('ERROR', 1, true)
  end, 'the report')
end)

test(':help specter', function(nvim)
  nvim:type(':help specter<CR>')
  equal(nvim:lua([[return vim.fn.expand('%:t')]]), 'specter.txt')
  for _, tag in ipairs({ 'specter-options', 'specter-keys', ':Specter', 'specter-statusline', 'specter-install' }) do
    equal(nvim:lua([[return pcall(vim.cmd.help, ...)]], tag), true, tag)
  end
end)

test('the tags of the help are up to date', function(nvim)
  local plugin = nvim:lua([[return vim.api.nvim_get_runtime_file('doc/specter.txt', false)[1] ]])
  local copy = vim.fn.tempname()
  vim.fn.mkdir(copy)
  vim.fn.writefile(vim.fn.readfile(plugin), copy .. '/specter.txt')
  vim.cmd.helptags(copy)
  equal(vim.fn.readfile(vim.fn.fnamemodify(plugin, ':h') .. '/tags'), vim.fn.readfile(copy .. '/tags'))
end)

if vim.lsp.inline_completion then
  test('lsp/specter.lua serves the completion that Neovim 0.12 brings', function(nvim)
    nvim:lua([[
      Fake = require('fake_server')
      Fake.automatic = function() return { 'b' } end
      local setup = require('specter').setup
      require('specter').setup = function(options) require('specter.config').set(options) end
      Fake.install()
      vim.lsp.enable('specter')
      vim.lsp.inline_completion.enable()
    ]])
    nvim:edit({ '' })
    nvim:lua([[vim.bo.filetype = 'python']])
    eventually(function() -- Neovim asks when text changes: what was typed before the server came is not asked about
      return nvim:lua([[return #vim.lsp.get_clients({ bufnr = 0, method = 'textDocument/inlineCompletion' })]]) > 0
    end, 'the server')
    nvim:type('ia')
    eventually(function()
      return nvim:screen()[1] == 'ab'
    end, 'its ghost text')
    nvim:lua([[vim.lsp.inline_completion.get()]])
    eventually(function()
      return nvim:lines()[1] == 'ab'
    end, 'the text')
  end)

  test('and leaves the drawing to us after setup()', function(nvim)
    nvim:lua([[vim.lsp.inline_completion.enable()]])
    fake(nvim, { '' })
    nvim:type('ia')
    answer(nvim, 'b')
    vim.wait(400)
    equal(nvim:screen()[1], 'ab')
    equal(requests(nvim), 1)
  end)
end
