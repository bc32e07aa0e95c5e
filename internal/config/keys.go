// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"time"
)

// Type is the form of a key's value.
type Type string

// The types.
const (
	Text     Type = "text"
	Choice   Type = "choice"
	Bool     Type = "bool"
	Number   Type = "number"
	Size     Type = "size"
	Duration Type = "duration"
	List     Type = "list"
	Map      Type = "map"
)

// Key is one setting: all that parsing, help and documentation know about it.
type Key struct {
	Name    string // as in the file, with dots between levels
	Type    Type
	Default string // as it would be written; empty: none
	Help    string // one or two sentences
	Choices []string
	// Min and Max bound a number, a size in bytes or a duration in nanoseconds.
	Min, Max int64
	// EnvOnly keys are accepted in the environment alone: what is in a file or on
	// a command line is read by others.
	EnvOnly bool
	Secret  bool
	// Later keys are of features that this version does not have: only the default is accepted.
	Later bool
}

// Env is the variable that sets the key.
func (k Key) Env() string {
	return "NEBULAIO_" + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Flag is the flag that sets the key, without its dashes; empty where there is none.
func (k Key) Flag() string {
	if k.EnvOnly || k.Later {
		return ""
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
}

// Keys lists every key in the order in which they are explained.
func Keys() []Key {
	var all []Key
	for _, f := range table() {
		all = append(all, f.Key)
	}
	return all
}

// field binds a key to its place in a Config.
type field struct {
	Key
	bind  func(*Config) any
	check func(string) string // of a Text, or of each name of a Map: what is wrong with it, or nothing
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// table is the one list of keys.
func table() []field {
	etags := []string{"md5", "crc64nvme"}
	return []field{
		{Key: Key{Name: "data", Type: Text, Default: "./data",
			Help: "Directory of the store: metadata, content and the administration socket. It is made where it does not exist."},
			bind: func(c *Config) any { return &c.Data }, check: notEmpty},
		{Key: Key{Name: "address", Type: Text, Default: "127.0.0.1:9000",
			Help: "HOST:PORT of the S3 API. Port 0 takes a free one and tells which."},
			bind: func(c *Config) any { return &c.Address }, check: hostPort},
		{Key: Key{Name: "console_address", Type: Text, Default: "127.0.0.1:9001",
			Help: "HOST:PORT of health, readiness and metrics."},
			bind: func(c *Config) any { return &c.ConsoleAddress }, check: hostPort},
		{Key: Key{Name: "region", Type: Text, Default: "us-east-1",
			Help: "The region that clients have to sign their requests for."},
			bind: func(c *Config) any { return &c.Region }, check: region},
		{Key: Key{Name: "domains", Type: List,
			Help: "Host names of the S3 API in lower case. Each bucket is then also served under its own host name, bucket.DOMAIN with any port; not set: by path alone."},
			bind: func(c *Config) any { return &c.Domains }, check: domainName},

		{Key: Key{Name: "root_user", Type: Text, EnvOnly: true,
			Help: "Access key of the administrator. Also from the file that NEBULAIO_ROOT_USER_FILE names. Not set: minioadmin, on a loopback address only, or generate_root_keys."},
			bind: func(c *Config) any { return &c.RootUser }, check: accessKey},
		{Key: Key{Name: "root_password", Type: Text, EnvOnly: true, Secret: true,
			Help: "Secret key of the administrator, 8 characters or more. Also from the file that NEBULAIO_ROOT_PASSWORD_FILE names."},
			bind: func(c *Config) any { return &c.RootPassword }, check: secretKey},
		{Key: Key{Name: "allow_default_credentials", Type: Bool, Default: "false",
			Help: "Serve the well-known default pair on addresses that other machines can reach. Anybody who knows them owns the store."},
			bind: func(c *Config) any { return &c.AllowDefaultCredentials }},
		{Key: Key{Name: "generate_root_keys", Type: Bool, Default: "false",
			Help: "Without NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD: make keys of the administrator at the first start and keep them in DATA/root.env (mode 0600), instead of the well-known pair."},
			bind: func(c *Config) any { return &c.GenerateRootKeys }},

		{Key: Key{Name: "verify_reads", Type: Choice, Default: "first", Choices: []string{"first", "always", "never"},
			Help: "When content is checked against its checksums: each block once per open file, on every read, or never."},
			bind: func(c *Config) any { return &c.VerifyReads }},
		{Key: Key{Name: "etag", Type: Choice, Default: "md5", Choices: etags,
			Help: "How ETags are made in buckets that are made from now on. md5 is what most clients expect and costs CPU on every write; crc64nvme costs almost nothing."},
			bind: func(c *Config) any { return &c.ETag }},
		{Key: Key{Name: "etag_buckets", Type: Map, Choices: etags,
			Help: "The same by patterns of bucket names (* and ?), the longest that matches counts; in the environment and on the command line as train-*=crc64nvme,logs=md5."},
			bind: func(c *Config) any { return &c.ETagBuckets }, check: pattern},
		{Key: Key{Name: "inline_size", Type: Size, Default: "16KiB", Min: 0, Max: 256 * kib,
			Help: "Objects up to this size lie with the metadata and share its group commit; larger ones get a file of their own."},
			bind: func(c *Config) any { return &c.InlineSize }},
		{Key: Key{Name: "memory_limit", Type: Size, Default: "256MiB", Min: 128 * mib, Max: 1024 * gib,
			Help: "The memory that the server stays within: caches, buffers and what the runtime keeps are shares of it. Very many requests under way at once may exceed it."},
			bind: func(c *Config) any { return &c.MemoryLimit }},

		{Key: Key{Name: "tls.cert", Type: Text,
			Help: "Certificate chain in PEM. With tls.key; both addresses then speak TLS. A changed file is taken without a restart."},
			bind: func(c *Config) any { return &c.TLS.Cert }},
		{Key: Key{Name: "tls.key", Type: Text,
			Help: "Private key of tls.cert in PEM. A changed file is taken without a restart."},
			bind: func(c *Config) any { return &c.TLS.Key }},
		{Key: Key{Name: "tls.generate", Type: Bool, Default: "false",
			Help: "Make a self-signed certificate, keep it in DATA/tls and print its fingerprint."},
			bind: func(c *Config) any { return &c.TLS.Generate }},
		{Key: Key{Name: "tls.hosts", Type: List, Default: "localhost,127.0.0.1,::1",
			Help: "Names and addresses in a generated certificate; the host of address and the machine's name are added."},
			bind: func(c *Config) any { return &c.TLS.Hosts }, check: hostName},

		{Key: Key{Name: "limits.connections", Type: Number, Default: "16384", Min: 1, Max: 1 << 20,
			Help: "Connections to the S3 address at one time; those beyond it are refused."},
			bind: func(c *Config) any { return &c.Limits.Connections }},
		{Key: Key{Name: "limits.requests", Type: Number, Default: "4096", Min: 1, Max: 1 << 20,
			Help: "S3 requests worked on at one time; those beyond it are answered with 503 SlowDown."},
			bind: func(c *Config) any { return &c.Limits.Requests }},
		{Key: Key{Name: "limits.header_bytes", Type: Size, Default: "8KiB", Min: 4 * kib, Max: mib,
			Help: "The longest header of a request, its first line included. An idle connection costs about as much memory."},
			bind: func(c *Config) any { return &c.Limits.HeaderBytes }},
		{Key: Key{Name: "limits.idle", Type: Duration, Default: "2m", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "How long a connection may wait for its next request."},
			bind: func(c *Config) any { return &c.Limits.Idle }},
		{Key: Key{Name: "limits.header", Type: Duration, Default: "30s", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "How long a client may take to send the header of a request."},
			bind: func(c *Config) any { return &c.Limits.Header }},
		{Key: Key{Name: "limits.stall", Type: Duration, Default: "1m", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "How long the client of a request may neither send nor take a byte before the request is ended."},
			bind: func(c *Config) any { return &c.Limits.Stall }},

		{Key: Key{Name: "drain_timeout", Type: Duration, Default: "30s", Min: int64(100 * time.Millisecond), Max: int64(time.Hour),
			Help: "How long requests under way may take after SIGTERM before they are cut off."},
			bind: func(c *Config) any { return &c.DrainTimeout }},
		{Key: Key{Name: "scrub.interval", Type: Duration, Default: "168h", Min: 0, Max: int64(8760 * time.Hour),
			Help: "How often all content is read and checked in the background; 0 leaves it to nebulaio store scrub."},
			bind: func(c *Config) any { return &c.Scrub.Interval }},
		{Key: Key{Name: "scrub.rate", Type: Size, Default: "32MiB", Min: 0, Max: 1024 * gib,
			Help: "How many bytes a second the background scrub reads; 0 is without limit."},
			bind: func(c *Config) any { return &c.Scrub.Rate }},
		{Key: Key{Name: "uploads.expire", Type: Duration, Default: "168h", Min: 0, Max: int64(87600 * time.Hour),
			Help: "How long a multipart upload may go without a new part before it is aborted and its space is given back; 0 keeps it until a client ends it."},
			bind: func(c *Config) any { return &c.Uploads.Expire }},

		{Key: Key{Name: "log_level", Type: Choice, Default: "info", Choices: []string{"debug", "info", "warn", "error"},
			Help: "The least important lines that are logged."},
			bind: func(c *Config) any { return &c.LogLevel }},
		{Key: Key{Name: "log_format", Type: Choice, Default: "auto", Choices: []string{"auto", "text", "json"},
			Help: "Form of the log on standard error; auto is text on a terminal and JSON elsewhere."},
			bind: func(c *Config) any { return &c.LogFormat }},
		{Key: Key{Name: "access_log", Type: Bool, Default: "false",
			Help: "Log every request with its id, operation, status, bytes and duration at level info; requests that fail for a reason of the server are logged in any case."},
			bind: func(c *Config) any { return &c.AccessLog }},
		{Key: Key{Name: "pprof", Type: Bool, Default: "false",
			Help: "Serve Go's profiles under /debug/pprof/ of the console address. They show a lot of the inside."},
			bind: func(c *Config) any { return &c.PProf }},

		{Key: Key{Name: "gpudirect.enabled", Type: Bool, Default: "false",
			Help: "Serve the door for GPUDirect clients on this host: they get objects as files and move the bytes between them and GPU memory themselves."},
			bind: func(c *Config) any { return &c.GPUDirect.Enabled }},
		{Key: Key{Name: "gpudirect.socket", Type: Text,
			Help: "Absolute path of the door's Unix socket, 107 bytes at most; not set: gpudirect.sock in the data directory. Every user may connect who can reach it: its directory decides who that is, access keys decide the rest."},
			bind: func(c *Config) any { return &c.GPUDirect.Socket }, check: socketPath},
		{Key: Key{Name: "gpudirect.buffer_pool_size", Type: Size, Default: "1GiB", Min: 16 * mib, Max: 64 * gib,
			Help: "The most host memory that a client uses for staging between files and GPUs, where it has not chosen itself; the engine takes no more than pays, 128 MiB. The door tells it to clients; the server itself stages nothing."},
			bind: func(c *Config) any { return &c.GPUDirect.BufferPoolSize }},
		{Key: Key{Name: "gpudirect.enable_async", Type: Bool, Default: "true",
			Help: "Whether moves may run beside their caller; false: what a client starts has ended when the call returns. The door tells it to clients, for whom it holds from then on."},
			bind: func(c *Config) any { return &c.GPUDirect.EnableAsync }},
		{Key: Key{Name: "gpudirect.device_ids", Type: List,
			Help: "Indices of the GPUs of this host, as nvidia-smi counts, whose memory objects may be moved to and from; not set: all. The door refuses others; host memory is always allowed."},
			bind: func(c *Config) any { return &c.GPUDirect.DeviceIDs }, check: deviceIndex},
		{Key: Key{Name: "gpudirect.max_transfer_size", Type: Size, Default: "256MiB", Min: mib, Max: 1024 * gib,
			Help: "The most bytes of one transfer; larger objects are moved in several. The door refuses longer ranges."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxTransferSize }},
		{Key: Key{Name: "gpudirect.enable_p2p", Type: Bool, Default: "true",
			Help: "Whether clients copy from one GPU to the next where the driver allows it, instead of reading again. The door tells it to clients."},
			bind: func(c *Config) any { return &c.GPUDirect.EnableP2P }},
		{Key: Key{Name: "gpudirect.queue_depth", Type: Number, Default: "64", Min: 1, Max: 4096,
			Help: "How many reads past the page cache a client has in flight at most, where it has not chosen itself; the engine takes 16. The door tells it to clients."},
			bind: func(c *Config) any { return &c.GPUDirect.QueueDepth }},
		{Key: Key{Name: "gpudirect.idle_timeout", Type: Duration, Default: "5m", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "How long a client of the door may be silent; then it is disconnected, what it holds is let go and what it was writing is dropped."},
			bind: func(c *Config) any { return &c.GPUDirect.IdleTimeout }},
		{Key: Key{Name: "gpudirect.max_connections", Type: Number, Default: "1024", Min: 1, Max: 65536,
			Help: "Connections to the door at one time; those beyond it are refused."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxConnections }},
		{Key: Key{Name: "gpudirect.max_handles", Type: Number, Default: "16384", Min: 1, Max: 1 << 24,
			Help: "Objects that one access key may have open through the door at one time. What is open keeps its space on the disk."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxHandles }},
		{Key: Key{Name: "gpudirect.max_draft_bytes", Type: Size, Default: "256GiB", Min: mib, Max: 1 << 20 * gib,
			Help: "Bytes that one access key may have reserved for objects which it writes through the door."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxDraftBytes }},
		{Key: Key{Name: "gpudirect.read_only_mount", Type: Bool, Default: "true",
			Help: "Hand out objects through a read-only mount of the data directory, so that no client can open them again for writing. It needs CAP_SYS_ADMIN and Linux 5.12; the mount is in a namespace of its own, which no other process sees. Without it root and clients of the server's own user can reopen what they are handed, and are told at login."},
			bind: func(c *Config) any { return &c.GPUDirect.ReadOnlyMount }},
		{Key: Key{Name: "s3_express.enabled", Type: Bool, Default: "false", Later: true,
			Help: "Directory buckets of S3 Express."},
			bind: func(c *Config) any { return &c.S3Express }},
		{Key: Key{Name: "rdma.enabled", Type: Bool, Default: "false",
			Help: "Accepted and without effect: " + NoRDMA + "."},
			bind: func(c *Config) any { return &c.RDMA }},
	}
}
