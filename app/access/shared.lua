-- One step of one key's use, counted once for all gateways: the arithmetic of accounts.py, on this server's clock.
-- KEYS: the set of gateways, by when each was heard last; the key's account, unless this is a sign of life only.
-- ARGV[1] and the result: msgpack, see shared.py. What a gateway has used is told as its sum since it began, what is open as it
-- is now: a message that is lost, repeated or late is put right by the next one.
local ask = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
redis.call('ZADD', KEYS[1], now, ask.gateway)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ask.life)
local gateways = redis.call('ZCARD', KEYS[1])
if not KEYS[2] then return cmsgpack.pack({gateways}) end

local stored, limits = redis.call('GET', KEYS[2]), ask.limits
local requests, tokens, _, day_there, today, total = unpack(ask.meter)  -- as the gateway knows it
local meter = stored and cmsgpack.unpack(stored)
  or {requests = requests, tokens = tokens, at = now, day = day_there, today = 0, total = 0, seen = {},
    epoch = ask.gateway .. now, base = {today = 0, total = 0}}

-- The meter at this time.
local minutes = math.max(now - meter.at, 0) / 60
meter.requests = math.max(meter.requests - minutes * (limits.rpm or 0), 0)
meter.tokens = math.max(meter.tokens - minutes * (limits.tpm or 0), 0)
meter.at = now
local day = math.floor(now / 86400)
if day > meter.day then meter.today, meter.base.today = 0, 0 end
if day > meter.day or meter.day - day > 2 then meter.day = day end

-- What this gateway has used since its last message. With its first one also what it knows of before: the most that a gateway
-- knows is where a server that has lost everything goes on (`base`), and one that has lost nothing knows more.
local last, used = meter.seen[ask.gateway], ask.used
if not last then
  last = ask.told
  local base = stored and ask.epoch == '' and {today = meter.today, total = meter.total} or meter.base
  local function merge(name, known)
    if ask.epoch ~= meter.epoch and known > base[name] then
      meter[name], base[name] = meter[name] + known - base[name], known
    end
  end
  merge('total', total - used[3] + last[3])
  if day_there == meter.day then merge('today', today - used[3] + last[3]) end
end
meter.requests = math.max(meter.requests + used[1] - last[1], 0)
meter.tokens = math.max(meter.tokens + used[2] - last[2], 0)
meter.today = math.min(meter.today + used[3] - last[3], 2 ^ 53)
meter.total = math.min(meter.total + used[3] - last[3], 2 ^ 53)

-- What is open at gateways that live. Of one that is gone, the sums are kept for a day.
local open, reserved = ask.open, ask.reserved
for id, one in pairs(meter.seen) do
  if id ~= ask.gateway then
    if redis.call('ZSCORE', KEYS[1], id) then
      open, reserved = open + one[4], reserved + one[5]
    elseif now - one[6] > 86400 then
      meter.seen[id] = nil
    end
  end
end

local function refusal(requests, tokens, slots)
  if limits.budget and meter.total + reserved >= limits.budget then
    return 'budget', meter.total < limits.budget and 1 or nil
  elseif limits.daily_budget and meter.today + reserved >= limits.daily_budget then
    return 'daily_budget', meter.today < limits.daily_budget and 1 or 86400 - now % 86400
  elseif limits.concurrency and slots > 0 and open >= limits.concurrency then
    return 'concurrency', 1
  elseif limits.rpm and requests > 0 and meter.requests + requests - limits.rpm > 1e-6 then
    return 'rpm', (meter.requests + requests - limits.rpm) * 60 / limits.rpm
  elseif limits.tpm and tokens > 0 and meter.tokens + tokens - limits.tpm > 1e-6 then
    return 'tpm', (meter.tokens + tokens - limits.tpm) * 60 / limits.tpm
  end
end

local wants = {0, 0, 0, 0}  -- requests, tokens of the minute, slots, tokens to reserve
local refused, wait
if ask.wants then
  refused, wait = refusal(unpack(ask.wants))
  if not refused then wants = ask.wants end
end
meter.requests, meter.tokens = meter.requests + wants[1], meter.tokens + wants[2]
local told = {used[1] + wants[1], used[2] + wants[2], used[3]}
meter.seen[ask.gateway] = {told[1], told[2], told[3], ask.open + wants[3], ask.reserved + wants[4], now}
redis.call('SET', KEYS[2], cmsgpack.pack(meter), 'EX', 8 * 86400)
return cmsgpack.pack({gateways, refused or cjson.null, wait or cjson.null, meter.epoch, told,
  {meter.requests, meter.tokens, now, meter.day, meter.today, meter.total}})
