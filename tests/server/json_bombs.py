"""Small JSON bodies that would cost a careless server much time or memory."""

JSON_BOMBS = {
    "nested lists": b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "nested where anything goes": b'{"messages":[{"role":"user","content":"x"}],"tools":'
    + b"[" * 900
    + b"]" * 900
    + b"}",
    "nested too deeply to be sent on": b'{"messages":[{"role":"user","content":"x"}],"tools":'
    + b"[" * 300
    + b"]" * 300
    + b"}",
    "open lists": b"[" * 1_000_000,
    "millions of numbers": b'{"input":[' + b"1," * 4_900_000 + b'1],"messages":[]}',
    "millions of objects": b'{"messages":[' + b"{}," * 3_200_000 + b"{}]}",
    "a huge number": b'{"messages":[{"role":"user","content":"x"}],"max_tokens":'
    + b"9" * 4000
    + b"}",
    "a huge number where anything goes": b'{"messages":[{"role":"user","content":"x"}],"tools":['
    + b"9" * 30
    + b"]}",
    "NaN": b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}',
    "Infinity": b'{"messages":[{"role":"user","content":"x"}],"temperature":1e999}',
    "a key twice": b'{"messages":[{"role":"user","content":"x"}],"stream":false,"stream":true}',
    "a key twice, deep down": b'{"messages":[{"role":"user","role":"system","content":"x"}]}',
    "thousands of keys twice": b'{"messages":[{"role":"user","content":"x"}]'
    + b"".join(b',"k%d":1' % n for n in range(5000))
    + b',"k4999":1}',
    "half a character": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    "no text at all": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
}
