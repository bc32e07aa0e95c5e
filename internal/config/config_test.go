// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nebulaio.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestDefaults(t *testing.T) {
	c, err := config.Load(config.Inputs{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Address != "127.0.0.1:9000" || c.ConsoleAddress != "127.0.0.1:9001" || c.InlineSize != 16<<10 ||
		c.DrainTimeout != 30*time.Second ||
		c.VerifyReads != "first" || c.ETag != "md5" || c.TLS.Enabled() || c.GPUDirect.Enabled ||
		c.GPUDirect.MaxTransferSize != 268435456 || c.GPUDirect.BufferPoolSize != 1073741824 ||
		c.GPUDirect.QueueDepth != 64 || !c.GPUDirect.EnableAsync || !c.GPUDirect.EnableP2P ||
		len(c.GPUDirect.Devices()) != 0 || len(c.Notes()) != 0 || len(c.TLS.Hosts) != 3 || c.Limits.Connections != 16384 {
		t.Errorf("%+v", c)
	}
	for _, v := range c.Values() {
		if v.Source.Origin != config.FromDefault || v.Text != v.Key.Default {
			t.Errorf("%s: %q from %v, the default is %q", v.Key.Name, v.Text, v.Source, v.Key.Default)
		}
	}
}

func TestAFlagWinsOverTheEnvironmentOverTheFileOverTheDefault(t *testing.T) {
	path := write(t, "region: from-file\nlimits:\n  connections: 100\n  idle: 5m\nlog_level: debug\n")
	c, err := config.Load(config.Inputs{
		File: path,
		Env: env(map[string]string{"NEBULAIO_LIMITS_CONNECTIONS": "200", "NEBULAIO_LOG_LEVEL": "warn",
			"NEBULAIO_REGION": " "}),
		Flags: map[string]string{"log_level": "error"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct{ name, text, source string }{
		{"region", "from-file", path + ":1"},
		{"limits.connections", "200", "$NEBULAIO_LIMITS_CONNECTIONS"},
		{"limits.idle", "5m", path + ":4"},
		{"log_level", "error", "--log-level"},
		{"etag", "md5", "default"},
	} {
		found := false
		for _, v := range c.Values() {
			if v.Key.Name != w.name {
				continue
			}
			found = true
			if v.Text != w.text || v.Source.String() != w.source {
				t.Errorf("%s: %q from %s, expected %q from %s", w.name, v.Text, v.Source, w.text, w.source)
			}
		}
		if !found {
			t.Errorf("no key %s", w.name)
		}
	}
	if c.Region != "from-file" || c.Limits.Connections != 200 || c.Limits.Idle != 5*time.Minute || c.LogLevel != "error" {
		t.Errorf("%+v", c)
	}
}

func TestEveryKeyIsReadFromEverywhere(t *testing.T) {
	other := map[string]string{
		"data": "/srv/x", "address": "[::1]:7000", "console_address": ":7001", "region": "mars-1",
		"domains": "s3.example,s3.internal", "root_user": "someone", "root_password": "something-else",
		"verify_reads": "always", "etag": "crc64nvme", "etag_buckets": "a*=md5,b=crc64nvme", "inline_size": "64KiB",
		"memory_limit": "512MiB", "tls.cert": "c.pem", "tls.key": "k.pem", "tls.kernel": "off",
		"console.enabled": "false", "console.allow_plain_http": "true", "console.hosts": "c.example",
		"console.benchmarks": "/bench",
		"tls.hosts":          "a.example,b.example", "limits.connections": "7", "limits.requests": "8",
		"limits.header_bytes": "9KiB",
		"limits.idle":         "7s", "limits.header": "8s", "limits.stall": "9s",
		"drain_timeout": "1m30s", "scrub.interval": "1h", "scrub.rate": "1GiB", "log_level": "debug", "log_format": "json",
		"allow_default_credentials": "true", "generate_root_keys": "true", "uploads.expire": "36h", "access_log": "true",
		"pprof": "true", "tls.generate": "true",
		"gpudirect.enabled": "true", "gpudirect.socket": "/run/door.sock", "gpudirect.buffer_pool_size": "2GiB",
		"gpudirect.enable_async": "false", "gpudirect.device_ids": "1,3",
		"gpudirect.max_transfer_size": "64MiB", "gpudirect.enable_p2p": "false", "gpudirect.queue_depth": "7",
		"gpudirect.idle_timeout": "7m", "gpudirect.max_connections": "8",
		"gpudirect.max_handles": "9", "gpudirect.max_draft_bytes": "10GiB", "gpudirect.read_only_mount": "true",
		"cluster.name": "node-7", "cluster.address": ":7002", "cluster.gossip_address": ":7003",
		"cluster.advertise": "10.0.0.7", "cluster.seeds": "a,b:7000", "cluster.key_file": "/etc/cluster.key",
		"cluster.zone": "rack-7", "cluster.weight": "7",
		"lifecycle.enabled": "false", "lifecycle.rate": "77", "object_ownership": "ObjectWriter",
		"s3_express.enabled": "true", "s3_express.zones": "use1-az4,z2", "s3_express.session_duration": "7m",
		"encryption.key_file": "/etc/master.key", "encryption.key_command": "/bin/hsm,get",
		"encryption.vault_address": "https://vault.example:8200", "encryption.vault_mount": "kv/transit",
		"encryption.vault_key": "store-1", "encryption.vault_token_file": "/run/token",
		"encryption.vault_ca_file": "/etc/ca.pem",
		"rdma.enabled":             "true", "cache.directory": "/nvme/cache", "cache.capacity": "10GiB",
		"cache.high_watermark": "95",
		"cache.low_watermark":  "50", "sts.max_duration": "2h", "sts.max_sessions": "7",
		"audit.file": "/var/log/audit.log", "audit.max_size": "1MiB", "audit.keep": "3", "audit.webhook": "http://h/audit",
		"audit.webhook_token_env": "TOKEN", "events.queue_limit": "9", "events.log_interval": "1m",
	}
	for _, k := range config.Keys() {
		text, ok := other[k.Name]
		if !ok {
			t.Errorf("%s is not tested", k.Name)
			continue
		}
		vars, flags := map[string]string{}, map[string]string{}
		switch k.Name { // those that come in pairs
		case "tls.cert":
			vars["NEBULAIO_TLS_KEY"] = "k.pem"
		case "tls.key":
			vars["NEBULAIO_TLS_CERT"] = "c.pem"
		case "root_user":
			vars["NEBULAIO_ROOT_PASSWORD"] = "something-else"
		case "root_password":
			vars["NEBULAIO_ROOT_USER"] = "someone"
		case "cluster.address":
			vars["NEBULAIO_CLUSTER_KEY_FILE"] = "/etc/cluster.key"
		case "cluster.gossip_address", "cluster.advertise", "cluster.seeds":
			vars["NEBULAIO_CLUSTER_ADDRESS"], vars["NEBULAIO_CLUSTER_KEY_FILE"] = ":7002", "/etc/cluster.key"
		case "encryption.vault_address":
			vars["NEBULAIO_ENCRYPTION_VAULT_TOKEN_FILE"] = "/run/token"
		case "encryption.vault_mount", "encryption.vault_key", "encryption.vault_token_file", "encryption.vault_ca_file":
			vars["NEBULAIO_ENCRYPTION_VAULT_ADDRESS"] = "https://vault.example:8200"
			if k.Name != "encryption.vault_token_file" {
				vars["NEBULAIO_ENCRYPTION_VAULT_TOKEN_FILE"] = "/run/token"
			}
		case "cluster.key_file":
			vars["NEBULAIO_CLUSTER_ADDRESS"] = ":7002"
		}
		check := func(in config.Inputs, origin config.Origin) {
			t.Helper()
			c, err := config.Load(in)
			if err != nil {
				t.Errorf("%s from the %s: %v", k.Name, origin, err)
				return
			}
			for _, v := range c.Values() {
				if v.Key.Name == k.Name && (v.Source.Origin != origin || v.Text != text && !k.Secret) {
					t.Errorf("%s from the %s: %q from %s", k.Name, origin, v.Text, v.Source)
				}
			}
		}
		if flag := k.Flag(); flag != "" {
			flags[k.Name] = text
			check(config.Inputs{Env: env(vars), Flags: flags}, config.FromFlag)
			written := text
			if k.Type == config.Text {
				written = "'" + text + "'" // [::1]:7000 is a list otherwise
			}
			lines := k.Name + ": " + written + "\n"
			if group, name, nested := strings.Cut(k.Name, "."); nested {
				lines = group + ":\n  " + name + ": " + written + "\n"
			}
			check(config.Inputs{File: write(t, lines), Env: env(vars)}, config.FromFile)
		}
		vars[k.Env()] = text
		check(config.Inputs{Env: env(vars)}, config.FromEnv)
	}
}

func TestListsAndMapsOfTheFile(t *testing.T) {
	c, err := config.Load(config.Inputs{File: write(t,
		"etag_buckets:\n  train-*: crc64nvme\n  train-logs: md5\ntls:\n  hosts: [a, 10.0.0.1]\n")})
	if err != nil {
		t.Fatal(err)
	}
	for bucket, want := range map[string]string{"train-1": "crc64nvme", "train-logs": "md5", "other": "md5"} {
		if got := c.ETagOf(bucket); got != want {
			t.Errorf("%s: %s, expected %s", bucket, got, want)
		}
	}
	if len(c.TLS.Hosts) != 2 || c.TLS.Hosts[1] != "10.0.0.1" {
		t.Errorf("%v", c.TLS.Hosts)
	}
}

func TestFilesThatAreEmpty(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "{}\n"} {
		if _, err := config.Load(config.Inputs{File: write(t, text)}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhatIsRefusedSaysWhereAndWhat(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"# a\nadress: x\n", `:2: unknown key "adress" (did you mean address?)`},
		{"tls:\n  certificate: x\n", `:2: unknown key "tls.certificate" (did you mean tls.cert?)`},
		{"zzzzzzzz: 7\n", `:1: unknown key "zzzzzzzz" (fix: see: nebulaio config)`},
		{"log_level: wran\n", `expected debug, info, warn or error (did you mean warn?)`},
		{"connections: 7\n", `:1: unknown key "connections" (did you mean limits.connections?)`},
		{"limits:\n  connections: many\n",
			`:2: "limits.connections" is the text "many"; expected a whole number from 1 to 1048576`},
		{"limits:\n  connections: 0\n", `:2: limits.connections "0" is not accepted; expected a whole number from 1`},
		{"limits: 7\n", `:1: "limits" is the number 7; expected its keys`},
		{"tls: [a]\n", `:1: "tls" is a list; expected its keys`},
		{"region: 7\n", `:1: "region" is the number 7; expected text`},
		{"region: yes it is\n", `:1: region "yes it is" is no region`},
		{"domains: [s3.example:9000]\n", `the item "s3.example:9000", which is no domain`},
		{"domains: [10.0.0.1]\n", `the item "10.0.0.1", which is an IP address`},
		{"domains: [S3.example]\n", `the item "S3.example", which is no domain`},
		{"domains: [-a.example]\n", `the item "-a.example", which is no domain`},
		{"address: localhost\n", `:1: address "localhost" is no address; expected HOST:PORT`},
		{"address: localhost:99999\n", `:1: address "localhost:99999" has the port "99999"`},
		{"access_log: maybe\n", `:1: "access_log" is the text "maybe"; expected true or false`},
		{"access_log:\n", `:1: "access_log" is empty; expected true or false`},
		{"verify_reads: sometimes\n", `:1: verify_reads "sometimes" is not accepted; expected first, always or never`},
		{"inline_size: 1Q\n", `:1: inline_size "1Q" has the unknown unit "Q"`},
		{"inline_size: 1GiB\n", `:1: inline_size "1GiB" is out of range; expected 0 to 256KiB`},
		{"drain_timeout: 30\n", `:1: drain_timeout "30" is not a duration; expected a number with a unit`},
		{"drain_timeout: -1s\n", `:1: drain_timeout "-1s" is out of range; expected 100ms to 1h`},
		{"region: a\nregion: b\n", `:2: "region" is given twice, first on line 1`},
		{"etag_buckets:\n  '[': md5\n", `etag_buckets has the name "[", which is no pattern`},
		{"etag_buckets:\n  a: sha1\n", `etag_buckets has "sha1" for "a"; expected md5 or crc64nvme`},
		{"etag_buckets:\n  a: md5\n  a: md5\n", `:3: "etag_buckets" names "a" twice`},
		{"root_password: secretsecret\n", `:1: "root_password" is not accepted in a file`},
		{"lifecycle:\n  rate: -1\n", `:2: lifecycle.rate "-1" is not accepted; expected a whole number from 0 to 1000000`},
		{"s3_express:\n  enabled: maybe\n", `:2: "s3_express.enabled" is the text "maybe"; expected true or false`},
		{"s3_express:\n  zones: [use1-az4, A]\n", `s3_express.zones has the item "A", which is no zone; expected lower-case`},
		{"s3_express:\n  zones: ['a--b']\n", `has the item "a--b", which is no zone`},
		{"s3_express:\n  session_duration: 100ms\n",
			`:2: s3_express.session_duration "100ms" is out of range; expected 1s to 1h`},
		{"s3_express:\n  session_duration: 300\n", `:2: s3_express.session_duration "300" is not a duration; expected`},
		{"s3_express:\n  default_zone: x\n", `:2: unknown key "s3_express.default_zone"`},
		{"gpudirect:\n  depth: 64\n", `:2: unknown key "gpudirect.depth"`},
		{"gpudirect:\n  queue_depth: 0\n", "expected a whole number from 1 to 4096"},
		{"gpudirect:\n  device_ids: [0, x]\n", `has the item "x", which is no index of a GPU`},
		{"gpudirect:\n  device_ids: [-1]\n", "is no index of a GPU"},
		{"gpudirect:\n  socket: door.sock\n", "is no absolute path"},
		{"gpudirect:\n  max_transfer_size: 10\n", "is out of range; expected 1MiB"},
		{"a: &x 1\nb: *x\n", ":1: anchors, aliases"},
		{"<<: {region: a}\n", ":1: anchors, aliases"},
		{"- a\n", ":1: the file is a list; expected KEY: VALUE lines"},
		{"region: a\n---\nregion: b\n", "has more than one YAML document"},
		{"region: [\n", "is no YAML: "},
		{"tls:\n  cert: x\n", "tls.cert: is set and tls.key is not"},
		{"tls:\n  cert: x\n  key: y\n  generate: true\n", "tls.generate: is true though tls.cert"},
		{"address: :7000\nconsole_address: :7000\n", `console_address: is ":7000", which is the S3 address too`},
	} {
		path := write(t, c.text)
		_, err := config.Load(config.Inputs{File: path})
		if err == nil || !strings.Contains(err.Error(), c.want) || !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v\nexpected %s", c.text, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v does not name the file", c.text, err)
		}
	}
}

func TestFlagsAndVariablesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		in   config.Inputs
		want string
	}{
		{config.Inputs{Env: env(map[string]string{"NEBULAIO_LIMITS_REQUESTS": "x"})},
			`the environment variable NEBULAIO_LIMITS_REQUESTS: is "x", which is not accepted; expected a whole number`},
		{config.Inputs{Flags: map[string]string{"address": "x"}}, `--address: "x" is no address`},
		{config.Inputs{Flags: map[string]string{"etag_buckets": "a"}},
			`--etag-buckets: "a" has the item "a"; expected NAME=VALUE`},
		{config.Inputs{Flags: map[string]string{"etag_buckets": "a=md5,a=md5"}}, `names "a" twice`},
		{config.Inputs{Flags: map[string]string{"root_password": "x"}}, "which this key does not have"},
		{config.Inputs{Env: env(map[string]string{"NEBULAIO_ROOT_USER": "someone"})},
			"only one of NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD"},
		{config.Inputs{Env: env(map[string]string{"NEBULAIO_S3_EXPRESS_ENABLED": "yes"})},
			`NEBULAIO_S3_EXPRESS_ENABLED: is "yes", which is not accepted; expected true or false`},
		{config.Inputs{Flags: map[string]string{"s3_express.session_duration": "2h"}},
			`--s3-express-session-duration: "2h" is out of range; expected 1s to 1h`},
		{config.Inputs{File: "does-not-exist.yaml"}, "does-not-exist.yaml"},
	} {
		if _, err := config.Load(c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nexpected %s", err, c.want)
		}
	}
}

// TestErrorsOfSettingsNameTheFileOnce: an error about settings that depend on each other names the configuration file,
// however short its path is, and names it once.
func TestErrorsOfSettingsNameTheFileOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	const added = "(the configuration file is e)"
	cert := env(map[string]string{"NEBULAIO_TLS_CERT": "c.pem"})
	for _, c := range []struct {
		text string
		env  func(string) string
		want string
	}{
		{"tls:\n  cert: c.pem\n", nil, "tls.cert: is set and tls.key is not (from e:2)"},
		{"region: r\n", cert, "is not (from $NEBULAIO_TLS_CERT) " + added},
		{"oidc:\n  x:\n    issuer: https://h\n", nil, added},
		{"event_target:\n  t:\n    type: kafka\n", nil, added},
	} {
		if err := os.WriteFile("e", []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(config.Inputs{File: "e", Env: c.env})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), added) != strings.Contains(c.want, added) {
			t.Errorf("%q: %v\nexpected %s", c.text, err, c.want)
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const secret = "do-not-show-me"
	c, err := config.Load(config.Inputs{Env: env(map[string]string{"NEBULAIO_ROOT_USER": "someone",
		"NEBULAIO_ROOT_PASSWORD_FILE": write(t, secret+"\n")})})
	if err != nil {
		t.Fatal(err)
	}
	if c.RootPassword != secret {
		t.Errorf("the password is %q", c.RootPassword)
	}
	for _, v := range c.Values() {
		if strings.Contains(v.Text, secret) {
			t.Errorf("%s is shown", v.Key.Name)
		}
	}
	_, err = config.Load(config.Inputs{Env: env(map[string]string{"NEBULAIO_ROOT_USER": "someone",
		"NEBULAIO_ROOT_PASSWORD": "hunter2"})})
	if err == nil || strings.Contains(err.Error(), "hunter2") ||
		!strings.Contains(err.Error(), "has 7 characters; expected 8 to 256") {
		t.Errorf("%v", err)
	}
	both := env(map[string]string{"NEBULAIO_ROOT_PASSWORD": secret, "NEBULAIO_ROOT_PASSWORD_FILE": "x"})
	if _, err := config.Load(config.Inputs{Env: both}); err == nil || !strings.Contains(err.Error(), "both set") {
		t.Errorf("%v", err)
	}
}

// FuzzFile: whatever a file holds, it is read or refused with its name, and
// what was read can be rendered.
func FuzzFile(f *testing.F) {
	f.Add("region: a\nlimits:\n  idle: 5m\netag_buckets: {a: md5}\ntls: {hosts: [a, b]}\n")
	f.Add("a: &x [*x]\n")
	f.Add("etag_buckets: {? [a] : b}\n")
	f.Add("upstream:\n  models:\n    endpoint: http://h\n    ttl: 5s\n    pin: [a*]\n")
	f.Add("event_target:\n  t:\n    type: kafka\n    address: [\"h:9092\"]\n    topic: e\n")
	f.Add("oidc:\n  company:\n    issuer: https://h\n    audiences: [a]\n    keys_max_age: 5m\n")
	f.Add("oidc:\n 0:\n  issuer: https://0") // no audiences
	dir := f.TempDir()
	named := func(group string) (n int) {
		for _, k := range config.NamedKeys() {
			if strings.HasPrefix(k.Name, group+".") {
				n++
			}
		}
		return n
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Inputs{File: path})
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		if len(c.Values()) != len(config.Keys())+len(c.Upstream)*named("upstream")+len(c.OIDC)*named("oidc")+
			len(c.EventTarget)*named("event_target") {
			t.Error("values are missing")
		}
	})
}

// TestTheSeedsSettings: every key of the public documentation of GPUDirect is taken as it is written there, from a file
// and from the environment.
func TestTheSeedsSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("gpudirect:\n  enabled: true\n  device_ids: [0, 1]\n  buffer_pool_size: "+
		"4294967296\n  max_transfer_size: 268435456\n  enable_async: true\n  enable_p2p: true\n  queue_depth: 64\nrdma:\n "+
		" enabled: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"NEBULAIO_GPUDIRECT_BUFFER_POOL_SIZE": "1073741824", "NEBULAIO_GPUDIRECT_ENABLE_P2P": "false",
		"NEBULAIO_GPUDIRECT_DEVICE_IDS": "2,3", "NEBULAIO_GPUDIRECT_SOCKET": "/run/x.sock"}
	c, err := config.Load(config.Inputs{File: file, Env: func(name string) string { return env[name] }})
	if err != nil {
		t.Fatal(err)
	}
	g := c.GPUDirect
	if !g.Enabled || g.BufferPoolSize != 1<<30 || g.MaxTransferSize != 256<<20 || !g.EnableAsync || g.EnableP2P ||
		g.QueueDepth != 64 || g.Socket != "/run/x.sock" || !slices.Equal(g.Devices(), []int{2, 3}) {
		t.Errorf("%+v", g)
	}
	n := c.Notes()
	if len(n) != 3 || !strings.Contains(n[0], "no RDMA transport") || !strings.Contains(n[0], "TCP") ||
		!strings.HasPrefix(n[1], "gpudirect.buffer_pool_size is 1.00 GiB, but clients use at most 128.00 MiB") ||
		!strings.HasPrefix(n[2], "gpudirect.queue_depth is 64, but clients use at most 16") {
		t.Errorf("notes %q", n)
	}
	// What clients do use, and defaults, need no note.
	env = map[string]string{"NEBULAIO_GPUDIRECT_BUFFER_POOL_SIZE": "128MiB", "NEBULAIO_GPUDIRECT_QUEUE_DEPTH": "16",
		"NEBULAIO_GPUDIRECT_MAX_TRANSFER_SIZE": "1GiB"}
	for _, in := range []config.Inputs{{}, {Env: func(name string) string { return env[name] }}} {
		if c, err = config.Load(in); err != nil || len(c.Notes()) != 0 {
			t.Errorf("notes %q, %v", c.Notes(), err)
		}
	}
	if config.ClientPoolSize != transfer.DefaultPoolSize {
		t.Errorf("the engine uses %d bytes, the notes say %d", int64(transfer.DefaultPoolSize), int64(config.ClientPoolSize))
	}
}
