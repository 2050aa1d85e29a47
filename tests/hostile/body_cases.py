"""Bad values of each field of each route, one row a case: (name, method, target, body, status, what the answer names).

A body is an object (sent as JSON) or bytes (sent as they are).
"""
import copy
import json

HUGE = 10 ** 400  # no 64-bit integer and no double holds it
DEEP = b"[" * 100_000
PAIR = "/v1/pairs/held"  # the pair that the suite makes before


def with_value(body, path, value):
    """`body` with the member at `path` replaced; DROP removes it."""
    out = copy.deepcopy(body)
    place = out
    for step in path[:-1]:
        place = place[step]
    if value is DROP:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return out


DROP = object()

BAD_URLS = [
    ("no scheme", "127.0.0.1:80", "must begin with"), ("scheme ftp", "ftp://127.0.0.1:80", "scheme"),
    ("scheme file", "file:///etc/passwd", "scheme"), ("scheme gopher", "gopher://127.0.0.1:80", "scheme"),
    ("scheme unix", "http+unix://%2Frun%2Fx.sock", "scheme"), ("scheme javascript", "javascript:alert(1)", "must begin with"),
    ("empty", "", "must begin with"), ("blank", " ", ""), ("only a scheme", "http://", "host is empty"),
    ("no host", "http://:80", "host is empty"), ("no host but a path", "http:///x", "host is empty"),
    ("user", "http://root@127.0.0.1:80", "user info"), ("user and password", "http://u:p@127.0.0.1:80", "user info"),
    ("empty user", "http://@127.0.0.1:80", "user info"), ("user that looks like a host", "http://127.0.0.1:80@1.2.3.4",
    "user info"),
    ("query", "http://127.0.0.1:80/?x=1", "query"), ("fragment", "http://127.0.0.1:80#x", "fragment"),
    ("space", "http://127.0.0.1 :80", "spaces"), ("tab", "http://127.0.0.1\t:80", "control"),
    ("line end", "http://127.0.0.1:80\r\nX: y", "control"), ("NUL", "http://127.0.0.1\0:80", "control"),
    ("escaped host", "http://%31%32%37.0.0.1:80", "host"), ("backslash", "http://127.0.0.1\\x:80", "host"),
    ("IDN", "http://b\u00fccher.example:80", "host"), ("full-width digits", "http://\uff11\uff12\uff17.0.0.1:80", "host"),
    ("ideographic stop", "http://127\u30020\u30020\u30021:80", "host"),
    ("path outside ASCII", "http://127.0.0.1:80/\u00e4", "ASCII"),
    ("empty label", "http://a..b:80", "label"), ("label of 64", "http://" + "a" * 64 + ".b:80", "label"),
    ("name of 254", "http://" + "a." * 126 + "bb:80", "host"), ("only a dot", "http://.:80", "host"),
    ("port 0", "http://127.0.0.1:0", "port"), ("port 65536", "http://127.0.0.1:65536", "port"),
    ("port -1", "http://127.0.0.1:-1", "port"), ("port +1", "http://127.0.0.1:+1", "port"),
    ("port of letters", "http://127.0.0.1:http", "port"), ("port empty", "http://127.0.0.1:", "port"),
    ("port huge", "http://127.0.0.1:99999999999999999999", "port"), ("two ports", "http://127.0.0.1:80:81", "port"),
    ("4 KiB", "http://127.0.0.1:80/" + "x" * 4096, "2048"),
    ("wildcard", "http://0.0.0.0:80", "wildcard"), ("wildcard short", "http://0:80", "wildcard"),
    ("wildcard hex", "http://0x0:80", "wildcard"), ("wildcard octal", "http://00:80", "wildcard"),
    ("wildcard octal parts", "http://00.00.00.00:80", "wildcard"), ("wildcard six", "http://[::]:80", "wildcard"),
    ("wildcard six long", "http://[0:0:0:0:0:0:0:0]:80", "wildcard"), ("wildcard mapped", "http://[::ffff:0.0.0.0]:80",
    "wildcard"),
    ("this network", "http://0.1.2.3:80", "wildcard"),
    ("metadata", "http://169.254.169.254:80", "never called"), ("metadata decimal", "http://2852039166:80", "never called"),
    ("metadata hex", "http://0xA9FEA9FE:80", "never called"), ("metadata hex parts", "http://0xa9.0xfe.0xa9.0xfe:80",
    "never called"),
    ("metadata octal", "http://0251.0376.0251.0376:80", "never called"),
    ("metadata short", "http://169.254.43518:80", "never called"),
    ("metadata with a dot after it", "http://169.254.169.254.:80", ""),
    ("metadata mapped", "http://[::ffff:169.254.169.254]:80", "never called"),
    ("metadata mapped hex", "http://[::FFFF:A9FE:A9FE]:80", "never called"),
    ("metadata mapped long", "http://[0:0:0:0:0:ffff:a9fe:a9fe]:80", "never called"),
    ("metadata compatible", "http://[::169.254.169.254]:80", "never called"),
    ("metadata through NAT64", "http://[64:ff9b::169.254.169.254]:80", "never called"),
    ("metadata through 6to4", "http://[2002:a9fe:a9fe::1]:80", "never called"),
    ("metadata name", "http://metadata.google.internal:80", "never called"),
    ("metadata name upper", "http://METADATA.Google.Internal.:80", "never called"),
    ("metadata six", "http://[fd00:ec2::254]:80", "never called"), ("metadata other cloud", "http://100.100.100.200:80",
    "never called"),
    ("metadata wire server", "http://168.63.129.16:80", "never called"),
    ("link-local six", "http://[fe80::1]:80", "never called"), ("link-local six upper", "http://[FE80::1]:80", "never called"),
    ("zone", "http://[fe80::1%25eth0]:80", "IPv6"), ("zone bare", "http://[::1%lo]:80", "IPv6"),
    ("multicast", "http://224.0.0.1:80", "never called"), ("broadcast", "http://255.255.255.255:80", "never called"),
    ("multicast six", "http://[ff02::1]:80", "never called"),
    ("bracket open", "http://[::1:80", "bracket"), ("bracket of a name", "http://[localhost]:80", "IPv6"),
    ("bracket of four", "http://[127.0.0.1]:80", "IPv6"), ("text after the bracket", "http://[::1]x:80", "IPv6"),
    ("six without brackets", "http://::1:80", "host"), ("eight groups and more", "http://[1:2:3:4:5:6:7:8:9]:80", "IPv6"),
    ("number out of range", "http://256.1.1.1:80", "IPv4"), ("five parts", "http://1.2.3.4.5:80", "IPv4"),
    ("decimal too large", "http://4294967296:80", "IPv4"), ("hex that is none", "http://0x7g:80", "IPv4"),
]

BAD_DIRECTORIES = [
    ("relative", "w/x", "absolute"), ("dot", ".", "absolute"), ("up", "{shared}/../etc", "'..'"),
    ("up at the end", "{shared}/..", "'..'"),
    ("outside", "/etc", "storage_roots"), ("beside", "{shared}x", "storage_roots"), ("root", "/", "storage_roots"),
    ("up, hidden by a dot", "{shared}/./../etc", "'..'"), ("NUL", "{shared}/a\0b", "control"),
    ("line end", "{shared}/a\nb", "control"), ("4 KiB", "{shared}/" + "a/" * 2048, "bytes"),
    ("a name of 300", "{shared}/" + "a" * 300, "bytes"), ("1 MiB", "{shared}/" + "a" * 1_000_000, "bytes"),
    ("home", "~/w", "absolute"), ("URL", "file:///etc", "absolute"),
]

BAD_NAMES = [("empty", "", "pair_name"), ("NUL", "a\0b", "pair_name"), ("line end", "a\nb", "pair_name"),
             ("DEL", "a\x7f", "pair_name"),
             ("257 bytes", "a" * 257, "pair_name"), ("4 KiB", "a" * 4096, "pair_name"), ("1 MiB", "a" * 1_000_000, "pair_name")]

BAD_ADAPTER_NAMES = ["", "a/b", "a\\b", ".", "..", "../x", "a\0b", "a\nb", "a" * 201, "a" * 4096]

# What isn't of the type, by type; the compatible API is lax, so its lists are shorter.
NO_TEXT = [None, 1, 1.5, True, [], {}, ["x"]]
NO_LIST = [None, 1, "x", True, {}]
NO_WHOLE_LAX = [None, "x", "", "1e3", 1.5, [], {}, "0x10", "1_0 x", "\u0661"]
NO_FLAG_LAX = [None, 2, "maybe", "", [], {}, 1.5]
NO_OBJECT = [1, 1.5, True, "x", [], ["x"]]

BAD_SETTINGS = [
    ("quorum", [None, 0, -1, 4097, HUGE, 1.5, "most", True, [], {}]), ("on_failure", [None, 1, "", "x", [], {}]),
    ("canary", [None, -1, 4097, 1.5, "1", True, HUGE, [], {}]), ("max_lag", [None, -1, 1_000_001, 1.5, "1", HUGE]),
    ("pause", [None, 1, "x", [], {}, "GATEWAY"]), ("pause_mode", [None, 1, "x", []]),
    ("load_window", [None, -1, 4097, 0.5, "1", HUGE]),
    ("straggler", [None, 0.5, 1001, "2", HUGE, -1, []]), ("evidence", [1, "x", "none", [], {}]), ("digest", [None, 1, "x"]),
    ("keep_versions", [None, 0, -1, 100_001, 1.5, "2", HUGE]),
    ("label_format", [None, 1, "x", "{version}" + "x" * 256, "loading:{version}", "{version}\n", "{version}\0", []]),
    ("allow_layout_change", [None, 1, "true", []]), ("coalesce", [None, 0, "no", {}]), ("deadlines_ms", [None, 1, "x", []]),
    ("quorun", [1]), ("", [1]), ("k" * 100_000, [1]),
]
BAD_DEADLINES = [(key, value) for key in ("save", "pause", "load", "verify", "resume", "restore", "whole")
                 for value in (None, 0, -1, 1.5, "5", 777_600_001, HUGE, [])] + [("load", 86_400_001), ("lode", 5)]


def shown(value):
    text = repr(value)
    return text if len(text) < 30 else f"{text[:20]}...({len(text)})"


def url_cases(method, target, base, path, names, status=(400, 403)):
    for name, url, word in BAD_URLS:
        yield f"{names}: {name}", method, target, with_value(base, path, url), status, (names, word)


def directory_cases(method, target, base, path, names, shared, status=(400, 403)):
    for name, text, word in BAD_DIRECTORIES:
        value = text.replace("{shared}", shared)
        yield f"{names}: {name}", method, target, with_value(base, path, value), status, (names, word)


def settings_cases(method, target, base, at, extra=()):
    body = with_value(base, (at,), {})
    for value in NO_OBJECT:
        yield f"{at}: {shown(value)}", method, target, with_value(base, (at,), value), (400,), (at,)
    for key, values in [*BAD_SETTINGS, *extra]:
        for value in values:
            yield (f"{at}.{key[:30]}: {shown(value)}", method, target, with_value(body, (at, key), value), (400,),
                   (f"{at}.{key}"[:90],))
    for key, value in BAD_DEADLINES:
        yield (f"{at}.deadlines_ms.{key}: {shown(value)}", method, target, with_value(body, (at, "deadlines_ms"), {key: value}),
               (400,), (f"{at}.deadlines_ms.{key}",))


def broken_json(method, target, base, status):
    """Bodies that are no JSON object in good order; `base` is one that would be taken."""
    good = json.dumps(base).encode()
    rows = [("cut short", good[:-1]), ("text after it", good + b"x"), ("two values", good + good),
            ("a comma too many", good[:-1] + b",}"),
            ("NaN", b'{"x":NaN,' + good[1:]), ("Infinity", b'{"x":-Infinity,' + good[1:]), ("single quotes", b"{'a':1}"),
            ("comment", b"/* */" + good), ("byte order mark", b"\xef\xbb\xbf" + good),
            ("UTF-16", good.decode().encode("utf-16")),
            ("not UTF-8", b'{"x":"\xff\xfe",' + good[1:]), ("overlong NUL", b'{"x":"\xc0\x80",' + good[1:]),
            ("surrogate in UTF-8", b'{"x":"\xed\xa0\x80",' + good[1:]), ("lone surrogate", b'{"x":"\\ud800",' + good[1:]),
            ("raw NUL", b'{"x":"\0",' + good[1:]), ("raw line end in a text", b'{"x":"\n",' + good[1:]), ("deep", DEEP),
            ("deep objects", b'{"a":' * 50_000), ("deep inside", b'{"x":' + b"[" * 65 + b"]" * 65 + b"," + good[1:]),
            ("duplicate", b'{"x":1,"x":1,' + good[1:]), ("duplicate, escaped", b'{"x":1,"\\u0078":1,' + good[1:]),
            ("duplicate inside", b'{"x":{"":1,"":1},' + good[1:]),
            ("duplicate of a megabyte", b'{"' + b"k" * 1_000_000 + b'":1,"' + b"k" * 1_000_000 + b'":2}'),
            ("leading zero", b'{"x":01,' + good[1:]), ("hex", b'{"x":0x1,' + good[1:]), ("null", b"null"), ("a list", b"[]"),
            ("a text", b'"x"'), ("a number", b"7"), ("nothing", b""), ("blanks", b"   "),
            ("very many values", b"[" + b"0," * 1_500_000 + b"0]"),
            ("very many keys", b"{" + b",".join(b'"%d":0' % i for i in range(1_100_000)) + b"}")]
    for name, body in rows:
        yield f"JSON: {name}", method, target, body, status, ()


def connect_base(shared, engine, trainer):
    return {"pair_name": "new", "train_worker_urls": [trainer], "inference_worker_urls": [engine], "mode": "disk",
            "save_path": shared}


def compat_cases(shared, engine, trainer):
    base = connect_base(shared, engine, trainer)
    yield from broken_json("POST", "/connect", base, (400, 413, 422))
    for key in ("pair_name", "train_worker_urls", "inference_worker_urls"):
        yield f"connect without {key}", "POST", "/connect", with_value(base, (key,), DROP), (422,), (key,)
    for key in ("pair_name", "mode", "save_path", "lora_name", "nccl_master_addr"):
        for value in NO_TEXT:
            yield f"connect.{key}: {shown(value)}", "POST", "/connect", with_value(base, (key,), value), (422,), (key,)
    for key in ("train_worker_urls", "inference_worker_urls"):
        for value in NO_LIST:
            yield f"connect.{key}: {shown(value)}", "POST", "/connect", with_value(base, (key,), value), (422,), (key,)
        for value in NO_TEXT:
            yield f"connect.{key}[0]: {shown(value)}", "POST", "/connect", with_value(base, (key,), [value]), (422,), (key,)
        yield f"connect.{key}: empty", "POST", "/connect", with_value(base, (key,), []), (400,), (key,)
        yield (f"connect.{key}: twice, spelled otherwise", "POST", "/connect",
               with_value(base, (key,), ["http://127.0.0.1:7", "HTTP://127.1:07/"]), (400,), (key + "[1]", "twice"))
        yield (f"connect.{key}: too many", "POST", "/connect", with_value(base, (key,),
               [f"http://h{i}:1" for i in range(16_385)]),
               (400,), (key, "at most"))
        yield (f"connect.{key}: very many of the wrong type", "POST", "/connect", with_value(base, (key,), [0] * 400_000), (422,),
               (key,))
        yield from url_cases("POST", "/connect", with_value(base, (key,), ["x"]), (key, 0), key)
    for value in NO_WHOLE_LAX:
        for key in ("lora_keep_versions", "nccl_master_port"):
            yield f"connect.{key}: {shown(value)}", "POST", "/connect", with_value(base, (key,), value), (422,), (key,)
    for value in NO_FLAG_LAX:
        for key in ("use_lora", "colocate"):
            yield f"connect.{key}: {shown(value)}", "POST", "/connect", with_value(base, (key,), value), (422,), (key,)
    for value in ("", "DISK", "disk\0", "x" * 100_000, "rdt"):
        yield f"connect.mode: {shown(value)}", "POST", "/connect", with_value(base, ("mode",), value), (400,), ("mode",)
    yield from directory_cases("POST", "/connect", base, ("save_path",), "save_path", shared)
    for name, value, word in BAD_NAMES:
        yield f"connect.pair_name: {name}", "POST", "/connect", with_value(base, ("pair_name",), value), (400,), (word,)
    yield from settings_cases("POST", "/connect", base, "settings",
        [("save_trigger", [None, 1, "one"]), ("dialect", [None, 1, "trt", []])])
    yield ("connect.settings.quorum above the fleet", "POST", "/connect", {**base, "settings": {"quorum": 2}}, (400,),
           ("quorum",))
    lora = {**base, "use_lora": True, "lora_name": "a"}
    for name in BAD_ADAPTER_NAMES:
        yield f"connect.lora_name: {shown(name)}", "POST", "/connect", {**lora, "lora_name": name}, (400,), ("lora_name",)
    for keep in (-1, 1025, 2 ** 70, -2 ** 70):
        yield (f"connect.lora_keep_versions: {keep}", "POST", "/connect", {**lora, "lora_keep_versions": keep}, (400,),
               ("lora_keep_versions",))
    for target in ("/update_weights", "/disconnect"):
        yield from broken_json("POST", target, {"pair_name": "nobody"}, (400, 404, 413, 422))
        yield f"{target} without a name", "POST", target, {}, (422,), ("pair_name",)
        for value in NO_TEXT:
            yield f"{target}.pair_name: {shown(value)}", "POST", target, {"pair_name": value}, (422,), ("pair_name",)
        for name, value, _ in BAD_NAMES:
            yield f"{target}.pair_name: {name}", "POST", target, {"pair_name": value}, (404,), ("not found",)
    for value in NO_WHOLE_LAX:
        yield f"update_weights.version: {shown(value)}", "POST", "/update_weights", {"pair_name": "held",
            "version": value}, (422,), ("version",)


# Bodies and keys of the metadata store. Names in its paths may be anything.
def meta_cases():
    put = ("PUT", "/weight_meta/p/k")
    for name, method, target, body, _, _ in broken_json(*put, {"value": 1}, ()):
        # The value is kept as it came: what Python's json takes of it is taken.
        if name not in TAKEN_BY_THE_STORE and isinstance(body, bytes):
            yield f"meta {name}", method, target, body, (413, 422), ()
    yield "meta: deep", *put, b'{"value":' + b"[" * 257 + b"]" * 257 + b"}", (422,), ()
    for value in NO_TEXT:
        yield f"meta set: {shown(value)}", "PUT", "/weight_meta/p/set/s", {"value": value}, (422,), ("value",)
    for row in broken_json("PUT", "/weight_meta/p/set/s", {"value": "x"}, (413, 422)):
        if row[0] != "JSON: very many keys":  # none of them is "value", which has a default
            yield row
    for name in ("%2F", "a%2Fb", "..%2f..%2fetc"):
        for method, target in (("GET", "{}"), ("PUT", "{}"), ("DELETE", "{}"), ("PUT", "set/{}"), ("GET", "set/{}/size")):
            yield f"meta {method} {target} {name}", method, "/weight_meta/p/" + target.format(name), {"value": "x"}, (404,), ()
    for method, target in (("POST", "/weight_meta/p/k"), ("DELETE", "/weight_meta/p/set/s"), ("GET", "/weight_meta/p"),
                           ("GET", "/weight_meta//k"), ("PUT", "/weight_meta/p/set/s/size"), ("GET", "/weight_meta/p/k/x")):
        yield f"meta {method} {target}", method, target, {"value": "x"}, (404, 405), ()
    for name in ("%00", "%ff", "a" * 3000, "%0d%0aX:y"):
        yield f"meta of nobody {name[:20]}", "GET", f"/weight_meta/{name}/{name}", b"", (404,), ("not found",)


TAKEN_BY_THE_STORE = ("JSON: duplicate", "JSON: duplicate, escaped", "JSON: duplicate inside", "JSON: duplicate of a megabyte",
                      "JSON: deep inside", "JSON: very many keys")


def pair_base(shared, engine, trainer):
    return {"mode": "disk", "save_path": shared, "trainers": {"kind": "areal", "urls": [trainer]}, "workers": [{"url": engine}]}


def native_cases(shared, engine, trainer):
    base = pair_base(shared, engine, trainer)
    put = ("PUT", "/v1/pairs/new")
    yield from broken_json(*put, base, (400, 413))
    for key in ("mode", "save_path", "trainers", "workers"):
        yield f"pair without {key}", *put, with_value(base, (key,), DROP), (400,), (key,)
    for key in ("mode", "save_path"):
        for value in NO_TEXT:
            yield f"pair.{key}: {shown(value)}", *put, with_value(base, (key,), value), (400,), (key,)
    for value in [*NO_OBJECT, None]:
        yield f"pair.trainers: {shown(value)}", *put, with_value(base, ("trainers",), value), (400,), ("trainers",)
        yield f"pair.workers[0]: {shown(value)}", *put, with_value(base, ("workers", 0), value), (400,), ("workers[0]",)
        yield f"pair.settings: {shown(value)}", *put, {**base, "settings": value}, (400,), ("settings",)
    for value in [*NO_LIST, [None], [1], [[]]]:
        yield (f"pair.trainers.urls: {shown(value)}", *put, with_value(base, ("trainers", "urls"), value), (400,),
               ("trainers.urls",))
        yield f"pair.workers: {shown(value)}", *put, with_value(base, ("workers",), value), (400,), ("workers",)
    for value in [*NO_TEXT, "AREAL", "x" * 100_000]:
        yield (f"pair.trainers.kind: {shown(value)}", *put, with_value(base, ("trainers", "kind"), value), (400,),
               ("trainers.kind",))
        yield (f"pair.trainers.save_trigger: {shown(value)}", *put, with_value(base, ("trainers", "save_trigger"), value),
               (400,),
               ("trainers.save_trigger",))
        yield (f"pair.workers[0].dialect: {shown(value)}", *put, with_value(base, ("workers", 0, "dialect"), value), (400,),
               ("workers[0].dialect",))
        yield (f"pair.new_lineage: {shown(value)}", *put, {**base, "new_lineage": [] if value is True else value}, (400,),
               ("new_lineage",))
        yield (f"pair.keep_unnamed: {shown(value)}", *put, {**base, "keep_unnamed": [] if value is True else value}, (400,),
               ("keep_unnamed",))
    for value in NO_TEXT:
        yield (f"pair.workers[0].url: {shown(value)}", *put, with_value(base, ("workers", 0, "url"), value), (400,),
               ("workers[0].url",))
    yield "pair.workers: none", *put, with_value(base, ("workers",), []), (400,), ("workers",)
    yield "pair.workers: too many", *put, with_value(base, ("workers",),
        [{"url": f"http://h{i}:1"} for i in range(4097)]), (400,), ("workers", "at most")
    yield ("pair.workers: twice", *put, with_value(base, ("workers",), [{"url": engine}, {"url": engine + "/"}]), (400,),
           ("workers[1]", "twice"))
    for place, key in (((), "save_pth"), (("trainers",), "url"), (("workers", 0), "adminkey"), ((), "k" * 100_000), ((), "")):
        yield (f"pair: unknown key {'.'.join(map(str, place))} {key[:30]}", *put, with_value(base, (*place, key), 1), (400,),
               ("unknown key",))
    for value in NO_OBJECT:
        yield f"pair.lora: {shown(value)}", *put, {**base, "lora": value}, (400,), ("lora",)
    for name in [*NO_TEXT, *BAD_ADAPTER_NAMES]:
        yield f"pair.lora.name: {shown(name)}", *put, {**base, "lora": {"name": name}}, (400,), ("lora.name",)
    for keep in (None, -1, 1.5, "1", True, [], HUGE, 2 ** 63, 1025):
        yield f"pair.lora.keep: {shown(keep)}", *put, {**base, "lora": {"name": "a", "keep": keep}}, (400,), ("lora.keep",)
    yield "pair.lora without a name", *put, {**base, "lora": {}}, (400,), ("lora.name",)
    yield "pair.lora: unknown key", *put, {**base, "lora": {"name": "a", "kept": 1}}, (400,), ("lora.kept",)
    for which in ("admin_key", "api_key"):
        for value in ["secret", 1, [], {}, {"key": "secret"}, {"env": 1}, {"file": 1}, {"env": "A", "file": "/x"}, {"env": ""},
                      {"env": "A=B"},
                      {"env": "PATH\0"}, {"file": "relative"}, {"file": "/etc/hostname\0x"}, {"file": "/"},
                      {"file": "/dev/zero"},
                      {"file": "/dev/stdin"}, {"file": "/" + "x" * 5000}, {"file": "/nowhere/../nowhere"},
                      {"env": "X" * 100_000}]:
            yield (f"pair.workers[0].{which}: {shown(value)}", *put, with_value(base, ("workers", 0, which), value), (400,),
                   (f"workers[0].{which}",))
    yield from url_cases(*put, base, ("trainers", "urls", 0), "trainers.urls[0]")
    yield from url_cases(*put, base, ("workers", 0, "url"), "workers[0].url")
    yield from directory_cases(*put, base, ("save_path",), "save_path", shared)
    yield from settings_cases(*put, base, "settings")
    yield from update_cases(shared)
    yield from rollback_cases()
    yield from worker_cases()
    yield from path_cases(base)


def update_cases(shared):
    post = ("POST", PAIR + "/updates")
    base = {"version": 1}
    yield from broken_json(*post, base, (400, 413))
    yield "update without a version", *post, {}, (400,), ("version",)
    for value in (None, 1.5, "1", True, [], {}, HUGE, 2 ** 63, 2 ** 64, -2 ** 63 - 1):
        yield f"update.version: {shown(value)}", *post, {"version": value}, (400,), ("version",)
        if value != 2 ** 63 - 1:
            yield f"update.lineage: {shown(value)}", *post, {**base, "lineage": value}, (400,), ("lineage",)
    for value in (2 ** 63 - 1, -2 ** 63):
        yield f"update.version: {value}", *post, {"version": value}, (400,), ("version",)
        yield f"update.lineage: {value}", *post, {**base, "lineage": value}, (400, 409), ("lineage",)
    for value in (None, 0, -1, "5", True, [], HUGE, 1e300, 604_801, 1e-9):
        yield f"update.deadline_s: {shown(value)}", *post, {**base, "deadline_s": value}, (400,), ("deadline_s",)
    for value in NO_TEXT:
        yield f"update.path: {shown(value)}", *post, {**base, "path": value}, (400,), ("path",)
    yield from directory_cases(*post, {**base, "path": shared}, ("path",), "path", shared)
    yield from settings_cases(*post, base, "policy")
    for key in ("verison", "", "save_trigger"):
        yield f"update: unknown key {key}", *post, {**base, key: 1}, (400,), ("unknown key",)
    for text in ("x", "", "-1", "1e9", "nan", "inf", "601", "1;2", "0x1", "%00", "1%00"):
        yield f"update?wait={text}", "POST", f"{PAIR}/updates?wait={text}", base, (400,), ("wait",)
        yield f"pair?wait={text}", "GET", f"{PAIR}?committed_at_least=1&wait={text}", b"", (400,), ("wait",)
    for text in ("x", "1.5", "99999999999999999999", "+1", "%31%00"):
        yield (f"pair?committed_at_least={text}", "GET", f"{PAIR}?wait=0&committed_at_least={text}", b"", (400,),
               ("committed_at_least",))
    for text in ("x", "0", "-1", "257", "99999999999999999999", "1.5", ""):
        yield f"updates?limit={text}", "GET", f"{PAIR}/updates?limit={text}", b"", (400,), ("limit",)
    for text in ("x", "%00", "..%2F..", "a" * 4096, "%ff"):
        yield f"updates?cursor={text[:20]}", "GET", f"{PAIR}/updates?cursor={text}", b"", (400,), ("cursor",)
    for text in ("x", "-1", "1.5", "99999999999999999999", "1%00"):
        yield f"events?after={text}", "GET", f"/v1/events?after={text}", b"", (400,), ("Last-Event-ID",)


def rollback_cases():
    post = ("POST", PAIR + ":rollback")
    for body in (b"{", b"[]", b"1", b"null", b'"x"', DEEP, b"{}{}", b"\xff"):
        yield f"rollback: {body[:10]}", *post, body, (400, 413), ()
    for value in (None, 1.5, "1", True, [], {}, HUGE, 2 ** 63, 2 ** 63 - 1, -2 ** 63):
        yield f"rollback.to: {shown(value)}", *post, {"to": value}, (400,), ("to",)
        yield f"rollback.lineage: {shown(value)}", *post, {"to": 1, "lineage": value}, (400,), ("lineage",)
    yield "rollback.lineage alone", *post, {"lineage": 1}, (400,), ("lineage",)
    for value in (None, 0, -1, "5", True, [], HUGE, 604_801):
        yield f"rollback.deadline_s: {shown(value)}", *post, {"deadline_s": value}, (400,), ("deadline_s",)
    for key in ("version", "path", "too", ""):
        yield f"rollback: unknown key {key}", *post, {key: 1}, (400,), ("unknown key",)
    yield from settings_cases(*post, {}, "policy")
    yield "rollback without a committed version", *post, {}, (409,), ("no version is committed",)
    collect = ("POST", PAIR + "/versions:collect")
    for value in (None, 1, 0, "true", [], {}):
        yield f"collect.dry_run: {shown(value)}", *collect, {"dry_run": value}, (400,), ("dry_run",)
    yield "collect: unknown key", *collect, {"dryrun": True}, (400,), ("unknown key", "dry_run")
    for name in ("x", "1.5", "-", "99999999999999999999", "1%00", "%2e%2e"):
        yield f"verify {name}", "POST", f"{PAIR}/versions/{name}:verify", b"", (404,), ("stored version",)
    for verb in ("drain", "quarantine", "release"):
        change = ("POST", PAIR + "/workers/{worker}:" + verb)
        for value in (None, 1, True, [], {}, "x" * 257):
            yield f"{verb}.reason: {shown(value)}", *change, {"reason": value}, (400,), ("reason",)
        yield f"{verb}: unknown key", *change, {"raeson": "x"}, (400,), ("unknown key", "reason")
        yield f"{verb} of nobody", "POST", f"{PAIR}/workers/nobody:1:{verb}", b"", (404,), ("worker",)


def worker_cases():
    add = ("POST", PAIR + "/workers:add")
    base = {"url": "http://127.0.0.1:29"}
    yield from broken_json(*add, base, (400, 413))
    yield "workers:add without a url", *add, {}, (400,), ("worker.url",)
    for value in NO_TEXT:
        yield f"workers:add.url: {shown(value)}", *add, {"url": value}, (400,), ("worker.url",)
    for value in [*NO_TEXT, "tgi"]:
        yield f"workers:add.dialect: {shown(value)}", *add, {**base, "dialect": value}, (400,), ("worker.dialect",)
    yield "workers:add: unknown key", *add, {**base, "urls": []}, (400,), ("unknown key",)
    yield "workers:add of one that is there", *add, {"url": "{engine}"}, (409,), ("already a member",)
    yield from url_cases(*add, base, ("url",), "worker.url")
    yield "the last worker's removal", "POST", PAIR + "/workers/{worker}:remove", b"", (409,), ("its last one",)


# Names in paths, as they are sent. A name that could be one is looked for and not found.
BAD_PATH_NAMES = ["%00", "a%00b", "%0a", "%ff", "%c0%80", "%ed%a0%80", "%7f", "a" * 257, "a" * 4096, "%2e%2e%2f" * 10 + "%00",
                  "%0d%0aX:y"]
ABSENT_NAMES = [*BAD_PATH_NAMES, "%2e%2e", "..", "%2F", "..%2f..%2fetc%2fpasswd", "%252e%252e", "%", "%zz", "%f", "%u002e",
                "a+b", "a;b", "a%3Fb",
                "%5c..%5c", "held%20", "%c3%a9", "~", "held%00"]


def path_cases(base):
    for name in BAD_PATH_NAMES:
        yield f"PUT pair {name[:20]}", "PUT", f"/v1/pairs/{name}", base, (400,), ("pair_name",)
    for name in ABSENT_NAMES:
        at = f"/v1/pairs/{name}"
        for method, target, body in (("GET", at, b""), ("DELETE", at, b""), ("POST", at + "/updates", {"version": 1}),
            ("GET", at + "/updates", b""), ("GET", at + "/updates/u1", b""), ("POST", at + "/updates/u1:cancel", b""),
            ("GET", at + "/workers", b""), ("POST", at + "/workers:add", {"url": "http://127.0.0.1:9"}),
            ("GET", at + "/workers/w/ready", b""),
            ("POST", at + "/workers/w:remove", b""), ("GET", f"{PAIR}/updates/{name}", b""),
            ("POST", f"{PAIR}/updates/{name}:cancel", b""), ("GET", f"{PAIR}/workers/{name}/ready", b""),
            ("POST", f"{PAIR}/workers/{name}:remove", b"")):
            yield f"{method} {target[:60]}", method, target, body, (404,), ("not found",)
    for target in ("/v1/pairs/held/", "/v1//pairs", "//v1/pairs", "/v1/pairs//updates", "/v1/./pairs", "/v1/../v1/pairs",
                   "/v1%2Fpairs", "/V1/pairs",
                   "/v1/pairs/held/updates/u1:", "/v1/pairs/held/updates/:cancel", "/%2e%2e/etc/passwd",
                   "/..%2f..%2fetc/passwd", "/\xff", "/health/x"):
        if not target.endswith("held/"):
            yield f"GET {target}", "GET", target.encode("latin-1"), b"", (404, 405), ()
