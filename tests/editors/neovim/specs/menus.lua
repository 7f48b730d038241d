--- nvim-cmp and blink.cmp, where $NVIM_CMP and $BLINK_CMP say they are: their menu and the suggestion side by side.
local helpers = require('child')
local fake, answer = helpers.fake, helpers.answer

if vim.env.NVIM_CMP then
  test('nvim-cmp: the menu, an accepted suggestion, and its own <Tab> after ours', function(nvim)
    nvim:lua(
      [[
      vim.opt.runtimepath:prepend(...)
      vim.cmd.runtime('plugin/cmp.lua')
      local cmp = require('cmp')
      cmp.register_source('words', { complete = function(_, _, done)
        done({ { label = 'console' } })
      end })
      cmp.setup({
        sources = { { name = 'words' } },
        completion = { completeopt = 'menu,menuone,noinsert' },
        mapping = {
          ['<Tab>'] = function(fallback)
            if not require('specter').accept() then fallback() end
          end,
          ['<C-n>'] = cmp.mapping.select_next_item(),
          ['<C-y>'] = cmp.mapping.confirm({ select = true }),
        },
      })
    ]],
      vim.env.NVIM_CMP
    )
    fake(nvim, { '' })
    nvim:type('i')
    nvim:type_slowly('co')
    eventually(function()
      return nvim:lua([[return require('cmp').visible()]])
    end, 'the menu')
    answer(nvim, 'unt = 1')
    equal(nvim:screen()[1], 'count = 1')
    nvim:type('<Tab>')
    vim.wait(100)
    equal(nvim:lines(), { 'count = 1' })
    nvim:type('<CR>')
    nvim:type_slowly('con')
    eventually(function()
      return nvim:lua([[return require('cmp').visible()]])
    end, 'the menu')
    nvim:type('<C-y>')
    eventually(function()
      return nvim:lines()[2] == 'console'
    end, 'the item')
    answer(nvim, '.log')
    equal(nvim:screen()[2], 'console.log')
    nvim:type('<M-e><Tab>x')
    vim.wait(100)
    equal(nvim:lines()[2], 'console\tx')
  end)
end

if vim.env.BLINK_CMP then
  test('blink.cmp: the menu, an accepted suggestion, and its own keys', function(nvim)
    nvim:lua(
      [[
      vim.opt.runtimepath:prepend(...)
      package.preload['words'] = function()
        return {
          new = function() return setmetatable({}, { __index = {
            get_completions = function(_, _, done)
              done({ items = { { label = 'console' } }, is_incomplete_forward = false,
                is_incomplete_backward = false })
            end,
          } }) end,
        }
      end
      require('blink.cmp').setup({
        fuzzy = { implementation = 'lua' },
        sources = { default = { 'words' }, providers = { words = { name = 'words', module = 'words' } } },
        keymap = { preset = 'default', ['<Tab>'] = {
          function() return require('specter').accept() end, 'snippet_forward', 'fallback' } },
      })
    ]],
      vim.env.BLINK_CMP
    )
    fake(nvim, { '' })
    nvim:type('i')
    nvim:type_slowly('co')
    eventually(function()
      return nvim:lua([[return require('blink.cmp').is_menu_visible()]])
    end, 'the menu')
    answer(nvim, 'unt = 1')
    equal(nvim:screen()[1], 'count = 1')
    nvim:type('<Tab>')
    vim.wait(100)
    equal(nvim:lines(), { 'count = 1' })
    nvim:type('<CR>')
    nvim:type_slowly('con')
    eventually(function()
      return nvim:lua([[return require('blink.cmp').is_menu_visible()]])
    end, 'the menu')
    nvim:type('<C-y>')
    eventually(function()
      return nvim:lines()[2] == 'console'
    end, 'the item')
  end)
end
