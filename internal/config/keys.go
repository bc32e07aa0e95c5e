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
			Help: "Directory of the store: metadata, content and the administration socket. The server makes it if it " +
				"does not exist."},
			bind: func(c *Config) any { return &c.Data }, check: notEmpty},
		{Key: Key{Name: "address", Type: Text, Default: "127.0.0.1:9000",
			Help: "HOST:PORT of the S3 API. With port 0 the server takes a free port and prints it."},
			bind: func(c *Config) any { return &c.Address }, check: hostPort},
		{Key: Key{Name: "console_address", Type: Text, Default: "127.0.0.1:9001",
			Help: "HOST:PORT of health, readiness and metrics."},
			bind: func(c *Config) any { return &c.ConsoleAddress }, check: hostPort},
		{Key: Key{Name: "region", Type: Text, Default: "us-east-1",
			Help: "The region for which clients sign their requests."},
			bind: func(c *Config) any { return &c.Region }, check: region},
		{Key: Key{Name: "domains", Type: List,
			Help: "Host names of the S3 API in lower case. Each bucket is then also served under its own host name, " +
				"bucket.DOMAIN, with any port. Not set: buckets are served by path alone."},
			bind: func(c *Config) any { return &c.Domains }, check: domainName},

		{Key: Key{Name: "root_user", Type: Text, EnvOnly: true,
			Help: "Access key of the administrator. NEBULAIO_ROOT_USER_FILE may name a file that holds it. Not set: the " +
				"keys of generate_root_keys, or minioadmin on a loopback address."},
			bind: func(c *Config) any { return &c.RootUser }, check: accessKey},
		{Key: Key{Name: "root_password", Type: Text, EnvOnly: true, Secret: true,
			Help: "Secret key of the administrator, 8 characters or more. NEBULAIO_ROOT_PASSWORD_FILE may name a file " +
				"that holds it."},
			bind: func(c *Config) any { return &c.RootPassword }, check: secretKey},
		{Key: Key{Name: "allow_default_credentials", Type: Bool, Default: "false",
			Help: "Accept the well-known default keys on addresses that other machines can reach. Anybody who knows the " +
				"default keys owns the store."},
			bind: func(c *Config) any { return &c.AllowDefaultCredentials }},
		{Key: Key{Name: "generate_root_keys", Type: Bool, Default: "false",
			Help: "Make keys for the administrator at the first start and store them in DATA/root.env (mode 0600), " +
				"instead of using the well-known default keys. No effect if NEBULAIO_ROOT_USER and " +
				"NEBULAIO_ROOT_PASSWORD are set."},
			bind: func(c *Config) any { return &c.GenerateRootKeys }},

		{Key: Key{Name: "verify_reads", Type: Choice, Default: "first", Choices: []string{"first", "always", "never"},
			Help: "When content is compared with its checksums: first compares each block once per open file, always on " +
				"every read, never not at all."},
			bind: func(c *Config) any { return &c.VerifyReads }},
		{Key: Key{Name: "etag", Type: Choice, Default: "md5", Choices: etags,
			Help: "Kind of ETag in buckets that are created from now on. Most clients expect md5, which costs CPU time " +
				"on every write; crc64nvme costs almost nothing."},
			bind: func(c *Config) any { return &c.ETag }},
		{Key: Key{Name: "etag_buckets", Type: Map, Choices: etags,
			Help: "Kind of ETag in new buckets, by patterns of bucket names (* and ?). The longest pattern that matches " +
				"a name wins over etag. In the environment and on the command line: train-*=crc64nvme,logs=md5."},
			bind: func(c *Config) any { return &c.ETagBuckets }, check: pattern},
		{Key: Key{Name: "inline_size", Type: Size, Default: "16KiB", Min: 0, Max: 256 * kib,
			Help: "Largest object in bytes that is stored with the metadata, where small writes share one flush. A " +
				"larger object gets a data file of its own."},
			bind: func(c *Config) any { return &c.InlineSize }},
		{Key: Key{Name: "memory_limit", Type: Size, Default: "256MiB", Min: 128 * mib, Max: 1024 * gib,
			Help: "Memory in bytes that the server stays within. Caches, buffers and the Go runtime get shares of it. " +
				"Very many requests at the same time may exceed it."},
			bind: func(c *Config) any { return &c.MemoryLimit }},

		{Key: Key{Name: "tls.cert", Type: Text,
			Help: "File with the certificate chain in PEM form; needs tls.key. Both addresses then speak TLS. The " +
				"server reads a changed file without a restart."},
			bind: func(c *Config) any { return &c.TLS.Cert }},
		{Key: Key{Name: "tls.key", Type: Text,
			Help: "File with the private key of tls.cert in PEM form. The server reads a changed file without a " +
				"restart."},
			bind: func(c *Config) any { return &c.TLS.Key }},
		{Key: Key{Name: "tls.generate", Type: Bool, Default: "false",
			Help: "Make a self-signed certificate, store it in DATA/tls and print its fingerprint."},
			bind: func(c *Config) any { return &c.TLS.Generate }},
		{Key: Key{Name: "tls.hosts", Type: List, Default: "localhost,127.0.0.1,::1",
			Help: "Host names and IP addresses in a generated certificate. The server adds the host of address and the " +
				"machine's name."},
			bind: func(c *Config) any { return &c.TLS.Hosts }, check: hostName},

		{Key: Key{Name: "limits.connections", Type: Number, Default: "16384", Min: 1, Max: 1 << 20,
			Help: "Largest number of open connections to the S3 address. The server refuses further connections."},
			bind: func(c *Config) any { return &c.Limits.Connections }},
		{Key: Key{Name: "limits.requests", Type: Number, Default: "4096", Min: 1, Max: 1 << 20,
			Help: "Largest number of S3 requests in progress. The server answers further requests with 503 SlowDown."},
			bind: func(c *Config) any { return &c.Limits.Requests }},
		{Key: Key{Name: "limits.header_bytes", Type: Size, Default: "8KiB", Min: 4 * kib, Max: mib,
			Help: "Largest header of a request in bytes, with its first line. An idle connection costs about as much " +
				"memory."},
			bind: func(c *Config) any { return &c.Limits.HeaderBytes }},
		{Key: Key{Name: "limits.idle", Type: Duration, Default: "2m", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "Time after which a connection without a new request is closed."},
			bind: func(c *Config) any { return &c.Limits.Idle }},
		{Key: Key{Name: "limits.header", Type: Duration, Default: "30s", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "Time that a client may take to send the header of a request."},
			bind: func(c *Config) any { return &c.Limits.Header }},
		{Key: Key{Name: "limits.stall", Type: Duration, Default: "1m", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "Time after which a request ends if its client neither sends nor takes a byte."},
			bind: func(c *Config) any { return &c.Limits.Stall }},

		{Key: Key{Name: "drain_timeout", Type: Duration, Default: "30s", Min: int64(100 * time.Millisecond),
			Max:  int64(time.Hour),
			Help: "Time that requests in progress may take after SIGTERM before they are cut off."},
			bind: func(c *Config) any { return &c.DrainTimeout }},
		{Key: Key{Name: "scrub.interval", Type: Duration, Default: "168h", Min: 0, Max: int64(8760 * time.Hour),
			Help: "Time between two background scrubs, which read and check all content. 0: never; run nebulaio store " +
				"scrub instead."},
			bind: func(c *Config) any { return &c.Scrub.Interval }},
		{Key: Key{Name: "scrub.rate", Type: Size, Default: "32MiB", Min: 0, Max: 1024 * gib,
			Help: "Bytes per second that the background scrub reads at most. 0: no limit."},
			bind: func(c *Config) any { return &c.Scrub.Rate }},
		{Key: Key{Name: "uploads.expire", Type: Duration, Default: "168h", Min: 0, Max: int64(87600 * time.Hour),
			Help: "Time after which a multipart upload without a new part is aborted and its space is freed. 0: never."},
			bind: func(c *Config) any { return &c.Uploads.Expire }},

		{Key: Key{Name: "log_level", Type: Choice, Default: "info", Choices: []string{"debug", "info", "warn", "error"},
			Help: "Lowest level of the lines that are logged."},
			bind: func(c *Config) any { return &c.LogLevel }},
		{Key: Key{Name: "log_format", Type: Choice, Default: "auto", Choices: []string{"auto", "text", "json"},
			Help: "Form of the log on standard error. auto is text on a terminal and JSON elsewhere."},
			bind: func(c *Config) any { return &c.LogFormat }},
		{Key: Key{Name: "access_log", Type: Bool, Default: "false",
			Help: "Log every request at level info, with its id, operation, status, bytes and duration. A request that " +
				"fails because of the server is always logged."},
			bind: func(c *Config) any { return &c.AccessLog }},
		{Key: Key{Name: "pprof", Type: Bool, Default: "false",
			Help: "Serve Go's profiles under /debug/pprof/ of the console address. Profiles show internals of the " +
				"server."},
			bind: func(c *Config) any { return &c.PProf }},

		{Key: Key{Name: "gpudirect.enabled", Type: Bool, Default: "false",
			Help: "Serve the door for GPUDirect clients on this host. Clients get objects as files, and move the bytes " +
				"between the files and GPU memory themselves."},
			bind: func(c *Config) any { return &c.GPUDirect.Enabled }},
		{Key: Key{Name: "gpudirect.socket", Type: Text,
			Help: "Absolute path of the door's Unix socket, 107 bytes at most. Not set: gpudirect.sock in the data " +
				"directory. Every user who can reach the socket may connect: the directory decides who can, and " +
				"access keys decide what a client may do."},
			bind: func(c *Config) any { return &c.GPUDirect.Socket }, check: socketPath},
		{Key: Key{Name: "gpudirect.buffer_pool_size", Type: Size, Default: "1GiB", Min: 16 * mib, Max: 64 * gib,
			Help: "Upper bound in bytes of the host memory that a client uses for staging between files and GPUs. It " +
				"applies to clients that have not chosen a size. Clients use at most 128 MiB by themselves, so a " +
				"larger bound has no effect. The door tells the bound to clients; the server stages nothing."},
			bind: func(c *Config) any { return &c.GPUDirect.BufferPoolSize }},
		{Key: Key{Name: "gpudirect.enable_async", Type: Bool, Default: "true",
			Help: "Whether a client's transfers may run asynchronously. false: a transfer has ended when the call that " +
				"started it returns. The door tells the setting to clients, which then follow it."},
			bind: func(c *Config) any { return &c.GPUDirect.EnableAsync }},
		{Key: Key{Name: "gpudirect.device_ids", Type: List,
			Help: "Indices of the GPUs of this host that clients may use, as nvidia-smi counts them. Not set: all GPUs. " +
				"The door refuses other GPUs; host memory is always allowed."},
			bind: func(c *Config) any { return &c.GPUDirect.DeviceIDs }, check: deviceIndex},
		{Key: Key{Name: "gpudirect.max_transfer_size", Type: Size, Default: "256MiB", Min: mib, Max: 1024 * gib,
			Help: "Largest range of an object in bytes that the door grants as one transfer. A larger object takes " +
				"several ranges, all in one request. The door refuses a longer range. It does not set the size of a " +
				"client's single reads and copies."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxTransferSize }},
		{Key: Key{Name: "gpudirect.enable_p2p", Type: Bool, Default: "true",
			Help: "Whether clients copy from one GPU to another, if the driver allows it, instead of reading twice. The " +
				"door tells the setting to clients."},
			bind: func(c *Config) any { return &c.GPUDirect.EnableP2P }},
		{Key: Key{Name: "gpudirect.queue_depth", Type: Number, Default: "64", Min: 1, Max: 4096,
			Help: "Upper bound of the direct reads that a client has in flight. It applies to clients that have not " +
				"chosen a depth. Clients use at most 16 by themselves, so a larger bound has no effect. The door " +
				"tells the bound to clients."},
			bind: func(c *Config) any { return &c.GPUDirect.QueueDepth }},
		{Key: Key{Name: "gpudirect.idle_timeout", Type: Duration, Default: "5m", Min: int64(time.Second),
			Max: int64(24 * time.Hour),
			Help: "Time after which the door disconnects a silent client. Its open objects are closed, and objects that " +
				"it was writing are dropped."},
			bind: func(c *Config) any { return &c.GPUDirect.IdleTimeout }},
		{Key: Key{Name: "gpudirect.max_connections", Type: Number, Default: "1024", Min: 1, Max: 65536,
			Help: "Largest number of open connections to the door. The door refuses further connections."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxConnections }},
		{Key: Key{Name: "gpudirect.max_handles", Type: Number, Default: "16384", Min: 1, Max: 1 << 24,
			Help: "Largest number of objects that one access key may have open through the door. An open object keeps " +
				"its space on the disk, even if it is deleted."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxHandles }},
		{Key: Key{Name: "gpudirect.max_draft_bytes", Type: Size, Default: "256GiB", Min: mib, Max: 1 << 20 * gib,
			Help: "Largest number of bytes that one access key may reserve for objects that it writes through the door."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxDraftBytes }},
		{Key: Key{Name: "gpudirect.read_only_mount", Type: Bool, Default: "true",
			Help: "Hand out objects through a read-only mount of the data directory, so that no client can open an " +
				"object again for writing. The mount needs CAP_SYS_ADMIN and Linux 5.12, and no other process sees " +
				"it. Without the mount, root and clients of the server's own user can open an object for writing, and " +
				"are told so at login."},
			bind: func(c *Config) any { return &c.GPUDirect.ReadOnlyMount }},
		{Key: Key{Name: "s3_express.enabled", Type: Bool, Default: "false", Later: true,
			Help: "Serve directory buckets of S3 Express."},
			bind: func(c *Config) any { return &c.S3Express }},
		{Key: Key{Name: "rdma.enabled", Type: Bool, Default: "false",
			Help: "Accepted and without effect: " + NoRDMA + "."},
			bind: func(c *Config) any { return &c.RDMA }},
	}
}
