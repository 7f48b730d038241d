--- The real server with the embedded pair: every command, and text that streams into the buffer. $SPECTER starts it.
--- One over TCP serves most tests, one after the other; what concerns the start of a server starts its own.
local command = { vim.env.SPECTER or 'specter', 'serve', '--device', 'cpu' }

local said = ''
local shared = vim.fn.jobstart(vim.list_extend(vim.list_slice(command), { '--tcp', '127.0.0.1:0' }), {
  on_stderr = function(_, data)
    said = said .. table.concat(data, '\n')
  end,
})
finally(function()
  vim.fn.jobstop(shared)
end)
local port = eventually(function()
  return tonumber(said:match('listening on 127%.0%.0%.1:(%d+)\n'))
end, 'a server that listens', 30000)

local CODE = {
  'import json',
  '',
  '',
  'class Point:',
  '    def __init__(self, x, y):',
  '        ',
}

---@param nvim Child
---@param lines string[]
---@param own? 'own' a server of its own
local function start(nvim, lines, own)
  nvim:lua(
    [[
    vim.cmd('filetype on')
    local command, port = ...
    require('specter').setup({ cmd = command ~= vim.NIL and command or vim.lsp.rpc.connect('127.0.0.1', port) })
    Grown = {}
    local show = require('specter.ghost').show
    require('specter.ghost').show = function(drawing)
      table.insert(Grown, drawing.text)
      show(drawing)
    end
  ]],
    own and command or vim.NIL,
    port
  )
  nvim:edit(lines)
  eventually(function()
    return nvim:lua([[return require('specter.client').status.state == 'ready']])
  end, 'the models', 60000)
end

local function suggestion(nvim)
  return eventually(function()
    return nvim:lua([[return require('specter.request').text()]]) ~= vim.NIL
      and nvim:lua([[return require('specter.request').text()]])
  end, 'a suggestion', 20000)
end

local function stats(nvim)
  nvim:lua([[Stats = nil require('specter.client').ask('specter/stats', vim.empty_dict(), function(s) Stats = s end)]])
  return eventually(function()
    local answer = nvim:lua([[return Stats]])
    return answer ~= vim.NIL and answer
  end, 'specter/stats')
end

--- What has been generated is complete.
local function idle(nvim)
  eventually(function()
    return stats(nvim).liveGenerations == 0
  end, 'the end of the generation', 20000)
  nvim:type('')
end

test('suggest, accept a word, accept all, undo, write', function(nvim)
  start(nvim, CODE, 'own')
  nvim:type('GA')
  suggestion(nvim)
  idle(nvim)
  local text = suggestion(nvim)
  nvim:type('<M-w>')
  local line = nvim:lines()[6]
  equal(vim.startswith(CODE[6] .. text, line) and #line > #CODE[6], true, line .. ' of ' .. text)
  nvim:type('<Tab>')
  nvim:type('<M-e>')
  local wanted = vim.split(table.concat(CODE, '\n') .. text, '\n')
  equal(nvim:lines(), wanted)
  nvim:type('<Esc>:write<CR>')
  equal(vim.fn.readfile(nvim:lua([[return vim.fn.expand('%:p')]])), wanted)
  nvim:type('uu')
  equal(nvim:lines(), CODE)
  local told = stats(nvim)
  equal({ told.accepted, told.partlyAccepted }, { 1, 1 })
end)

test('a buffer without a name', function(nvim)
  start(nvim, CODE)
  nvim:type(':enew<CR>idef add(a, b):<CR>    return ')
  suggestion(nvim)
  idle(nvim)
  local text = suggestion(nvim)
  nvim:type('<Tab>')
  equal(table.concat(nvim:lines(), '\n'), 'def add(a, b):\n    return ' .. text)
end)

test('others of the real server: asked for once, next and previous go round', function(nvim)
  start(nvim, { 'import json', '', 'def read_json(path):', '    with open(path) as file:', '        return js' })
  nvim:type('GA')
  suggestion(nvim)
  idle(nvim)
  local first = suggestion(nvim)
  nvim:type('<M-]>')
  local second = eventually(function()
    local text = nvim:lua([[return require('specter.request').text()]])
    equal(text ~= vim.NIL, true, 'the screen was empty')
    return text ~= first and text
  end, 'another', 20000)
  local asked = stats(nvim).requests
  local seen = { first, second }
  repeat
    nvim:type('<M-]>')
    table.insert(seen, suggestion(nvim))
  until seen[#seen] == first or #seen > 5
  equal(seen[#seen], first, vim.inspect(seen))
  equal(stats(nvim).requests, asked)
  nvim:type('<M-[>')
  equal(suggestion(nvim), seen[#seen - 1])
  nvim:type('<Tab>')
  eventually(function()
    return stats(nvim).accepted == 1
  end, 'the acceptance')
end)

test('pair auto', function(nvim)
  start(nvim, CODE)
  nvim:type(':Specter pair auto<CR>')
  nvim:type('GA')
  suggestion(nvim)
  equal(nvim:messages(), {})
end)

test('it streams: each text extends the one before', function(nvim)
  start(nvim, { 'def fibonacci(n):', '    """The first n Fibonacci numbers."""', '    ' })
  nvim:type('GA')
  suggestion(nvim)
  idle(nvim)
  local grown = nvim:lua([[return Grown]])
  local before = ''
  local steps = 0
  for _, text in ipairs(grown) do
    equal(vim.startswith(text, before), true, vim.inspect(grown))
    steps = steps + (text ~= before and 1 or 0)
    before = text
  end
  equal(steps > 1, true, 'more than one step: ' .. vim.inspect(grown))
end)

test('typing along never hides it', function(nvim)
  start(nvim, CODE)
  nvim:type('GA')
  suggestion(nvim)
  idle(nvim)
  local text = suggestion(nvim):match('[^\n]*')
  nvim:lua([[
    Hidden = 0
    local hide = require('specter.ghost').hide
    require('specter.ghost').hide = function() Hidden = Hidden + 1 hide() end
  ]])
  for _, key in ipairs(vim.fn.split(text:sub(1, -2), '\\zs')) do
    nvim:type(key)
    equal(nvim:lua([[return require('specter.request').text() ~= nil]]), true, 'after ' .. nvim:lines()[6])
  end
  equal(nvim:lua([[return Hidden]]), 0)
end)

test('a key that differs, and leaving Insert mode, leave no generation behind', function(nvim)
  local caught = 0
  for _, name in ipairs({ 'Rectangle', 'Box', 'User', 'Point' }) do
    local lines = { 'class ' .. name .. ':', '    """A ' .. name:lower() .. '."""', '' }
    vim.list_extend(lines, { '    def __init__(self, width, height, depth, color):' })
    if name == 'Rectangle' then
      start(nvim, lines)
    else
      nvim:edit(lines, '-' .. name .. '.py')
    end
    nvim:type('Go        ')
    suggestion(nvim)
    local live = stats(nvim).liveGenerations
    nvim:type(name == 'Box' and '<Esc>' or '?<Esc>')
    eventually(function()
      return stats(nvim).liveGenerations == 0
    end, 'the end of the generation', 1000)
    caught = caught + live
  end
  equal(caught > 0, true, 'a running generation was met')
  equal(stats(nvim).cancelled > 0, true)
end)

test('20 keys a second: nothing lost, at most one generation at any time', function(nvim)
  start(nvim, { '' })
  nvim:type('i')
  local text = 'def area(self, width, height): return width * height'
  local live = 0
  for _, key in ipairs(vim.fn.split(text, '\\zs')) do
    nvim:type(key)
    vim.wait(50)
    live = math.max(live, stats(nvim).liveGenerations)
  end
  nvim:type('<Esc>')
  equal(nvim:lines(), { text })
  equal(live <= 1, true, live .. ' at once')
  idle(nvim)
end)

test('status, context, pair, log', function(nvim)
  start(nvim, CODE, 'own')
  nvim:type('GA')
  suggestion(nvim)
  nvim:type('<Esc>:Specter context<CR>')
  eventually(function()
    return nvim:lines()[1]:find('tokens:')
  end, 'the context')
  equal(table.concat(nvim:lines(), '\n'):find('__init__', 1, true) ~= nil, true)
  nvim:type('q:Specter<CR>')
  eventually(function()
    return nvim:lines()[1]:find('^Specter %d')
  end, 'the status')
  equal(nvim:lines()[2]:find('embedded') ~= nil, true, nvim:lines()[2])
  nvim:type('q:Specter pair<CR>')
  eventually(function()
    return nvim:lines()[1]:find('^PAIR')
  end, 'the pairs', 20000)
  nvim:type('q')
  local offered = nvim:lua([[return vim.fn.getcompletion('Specter pair ', 'cmdline')]])
  for _, name in ipairs({ 'auto', 'embedded', 'qwen2.5-coder-7b' }) do
    equal(vim.tbl_contains(offered, name), true, name)
  end
  nvim:type(':Specter log<CR>')
  equal(nvim:lua([[return vim.bo.readonly]]), true)
end)

test('disable frees the models, enable loads them again', function(nvim)
  start(nvim, CODE)
  local function state(wanted)
    eventually(function()
      return nvim:lua([[return require('specter.client').status.state]]) == wanted
    end, wanted, 60000)
  end
  nvim:type(':Specter disable<CR>')
  state('off')
  nvim:type(':Specter enable<CR>')
  state('ready')
  nvim:type('GA')
  suggestion(nvim)
end)

test('restart', function(nvim)
  start(nvim, CODE, 'own')
  nvim:type(':Specter restart<CR>')
  eventually(function()
    return nvim:lua([[return require('specter.client').status.state == 'loading']])
  end, 'the new server', 20000)
  eventually(function()
    return nvim:lua([[return require('specter.client').status.state == 'ready']])
  end, 'its models', 60000)
  nvim:type('GA')
  suggestion(nvim)
  equal(nvim:messages(), {})
end)

test('a pair that does not exist is named, and the next choice works', function(nvim)
  start(nvim, CODE)
  nvim:type(':Specter pair no-such-pair<CR>')
  nvim:message("'no-such-pair' is unknown", 20000)
  nvim:type('Go# the editor works<Esc>')
  equal(nvim:lines()[7]:find('# the editor works', 1, true) ~= nil, true)
  nvim:type('u:Specter pair embedded<CR>')
  nvim:type('GA')
  suggestion(nvim)
end)

test('a file with secrets is left alone', function(nvim)
  start(nvim, CODE)
  nvim:lua([[vim.cmd.edit(vim.fn.tempname() .. '/.env')]])
  nvim:type('iTOKEN=<Esc>:Specter context<CR>')
  eventually(function()
    return nvim:lines()[1]:find('excluded', 1, true)
  end, 'the word')
end)

if vim.lsp.inline_completion then
  test('the completion that Neovim 0.12 brings, with lsp/specter.lua', function(nvim)
    nvim:lua(
      [[
      vim.cmd('filetype on')
      require('specter.config').set({ cmd = ... })
      vim.lsp.enable('specter')
      vim.lsp.inline_completion.enable()
    ]],
      command
    )
    nvim:edit(CODE)
    eventually(function()
      return nvim:lua([[return require('specter.client').status.state == 'ready']])
    end, 'the models', 60000)
    nvim:type('GA')
    eventually(function()
      nvim:lua([[vim.lsp.inline_completion.get()]])
      return nvim:lines()[6] ~= CODE[6]
    end, 'its text in the buffer', 20000)
  end)
end
