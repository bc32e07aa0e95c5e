// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"time"
)

// Type is the type of a setting's value.
type Type string

// The types that a setting's value can have.
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

// Key describes one setting for parsing, help and documentation.
type Key struct {
	Name    string // name of the setting in the YAML file, with dots between levels, such as tls.cert
	Type    Type
	Default string // default value of the setting as a user would write it; empty means no default
	Help    string // meaning of the setting, a few sentences
	Choices []string
	// Min and Max are the smallest and the largest allowed value of a number, a size in bytes or a duration in
	// nanoseconds.
	Min, Max int64
	// EnvOnly allows the setting only in the environment, because other users could read its value in a file or on a
	// command line.
	EnvOnly bool
	Secret  bool
	// FileOnly allows the setting only in the file, because there is one for each name, such as an upstream bucket.
	FileOnly bool
}

// Env returns the name of the environment variable of the setting. Env returns "" if the setting has no variable.
func (k Key) Env() string {
	if k.FileOnly {
		return ""
	}
	return "NEBULAIO_" + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Flag returns the name of the command-line flag of the setting, without leading dashes. Flag returns "" if the
// setting has no flag.
func (k Key) Flag() string {
	if k.EnvOnly || k.FileOnly {
		return ""
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
}

// Keys returns the descriptions of all settings except those of NamedKeys, in the order of the documentation.
func Keys() []Key { return keysOf(table()) }

func keysOf(fields []field) []Key {
	var all []Key
	for _, f := range fields {
		all = append(all, f.Key)
	}
	return all
}

// field connects a key with its field of a Config.
type field struct {
	Key
	bind func(*Config) any
	// check returns what is wrong with a Text or with a name of a Map, or "".
	check func(string) string
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// table returns all keys of the configuration except those of named groups.
func table() []field {
	return slices.Concat(serverFields(), consoleFields(), expressFields(), lifecycleFields(), encryptionFields(),
		cacheFields(), clusterFields(), stsFields(), eventFields())
}

// serverFields returns the keys of the store, its addresses, its limits and the door.
func serverFields() []field {
	etags := []string{"md5", "crc64nvme"}
	return []field{
		{Key: Key{Name: "data", Type: Text, Default: "./data",
			Help: "Directory of the object store, with its metadata, content and administration socket. The " +
				"server creates the data directory if it does not exist."},
			bind: func(c *Config) any { return &c.Data }, check: notEmpty},
		{Key: Key{Name: "address", Type: Text, Default: "127.0.0.1:9000",
			Help: "HOST:PORT on which the server serves the S3 API. If the port of the S3 address is 0, the " +
				"server chooses a free port and prints it at the start."},
			bind: func(c *Config) any { return &c.Address }, check: hostPort},
		{Key: Key{Name: "console_address", Type: Text, Default: "127.0.0.1:9001",
			Help: "HOST:PORT of the console, which serves health checks, readiness checks, metrics and the web " +
				"console over HTTP or HTTPS."},
			bind: func(c *Config) any { return &c.ConsoleAddress }, check: hostPort},
		{Key: Key{Name: "region", Type: Text, Default: "us-east-1",
			Help: "S3 region for which clients must sign their requests."},
			bind: func(c *Config) any { return &c.Region }, check: region},
		{Key: Key{Name: "domains", Type: List,
			Help: "Host names of the S3 API in lower case. For each DOMAIN, the server also serves every bucket " +
				"under the host name BUCKET.DOMAIN, with any port. If domains is not set, the server accepts " +
				"only path-style requests."},
			bind: func(c *Config) any { return &c.Domains }, check: domainName},

		{Key: Key{Name: "root_user", Type: Text, EnvOnly: true,
			Help: "Access key of the administrator. The environment variable NEBULAIO_ROOT_USER_FILE can " +
				"name a file that holds the access key. If root_user is not set, the server uses the access " +
				"key that generate_root_keys has made, or else the default access key minioadmin."},
			bind: func(c *Config) any { return &c.RootUser }, check: accessKey},
		{Key: Key{Name: "root_password", Type: Text, EnvOnly: true, Secret: true,
			Help: "Secret key of the administrator, 8 characters or more. The environment variable " +
				"NEBULAIO_ROOT_PASSWORD_FILE can name a file that holds the secret key. If root_password is " +
				"not set, the server uses the secret key that generate_root_keys has made, or else the " +
				"default secret key minioadmin."},
			bind: func(c *Config) any { return &c.RootPassword }, check: secretKey},
		{Key: Key{Name: "allow_default_credentials", Type: Bool, Default: "false",
			Help: "Accept the well-known default access key and secret key minioadmin even if other " +
				"machines can reach the S3 address. Anybody who knows the default keys can read and change " +
				"the whole store."},
			bind: func(c *Config) any { return &c.AllowDefaultCredentials }},
		{Key: Key{Name: "generate_root_keys", Type: Bool, Default: "false",
			Help: "Generate the administrator's access key and secret key at the first start, and store " +
				"them in the file root.env of the data directory (mode 0600). generate_root_keys has no " +
				"effect if NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD are set."},
			bind: func(c *Config) any { return &c.GenerateRootKeys }},

		{Key: Key{Name: "verify_reads", Type: Choice, Default: "first", Choices: []string{"first", "always", "never"},
			Help: "How often reads compare content with its checksums: once per block and open file " +
				"(first), on every read (always), or not at all (never)."},
			bind: func(c *Config) any { return &c.VerifyReads }},
		{Key: Key{Name: "etag", Type: Choice, Default: "md5", Choices: etags,
			Help: "Kind of ETag for objects in new buckets. Most clients expect an md5 ETag, which costs " +
				"CPU time on every write; a crc64nvme ETag costs almost no CPU time."},
			bind: func(c *Config) any { return &c.ETag }},
		{Key: Key{Name: "etag_buckets", Type: Map, Choices: etags,
			Help: "Kind of ETag for objects in new buckets whose names match a pattern with * and ?. If " +
				"several patterns match the name of a bucket, the longest pattern decides; if no pattern " +
				"matches, the setting etag decides. In the environment and in flags, the value of " +
				"etag_buckets is a list such as train-*=crc64nvme,logs=md5."},
			bind: func(c *Config) any { return &c.ETagBuckets }, check: pattern},
		{Key: Key{Name: "object_ownership", Type: Choice, Default: "BucketOwnerEnforced",
			Choices: []string{"BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"},
			Help: "S3 object ownership of a new bucket whose creator names none. With BucketOwnerEnforced, the " +
				"default of S3, ACLs have no effect. With BucketOwnerPreferred and ObjectWriter, buckets and " +
				"objects have ACLs."},
			bind: func(c *Config) any { return &c.ObjectOwnership }},
		{Key: Key{Name: "inline_size", Type: Size, Default: "16KiB", Min: 0, Max: 256 * kib,
			Help: "Largest size in bytes of an object whose content the store keeps in the metadata. The " +
				"store can make many small objects in the metadata durable with one flush. An object that " +
				"is larger than inline_size gets its own data file."},
			bind: func(c *Config) any { return &c.InlineSize }},
		{Key: Key{Name: "memory_limit", Type: Size, Default: "256MiB", Min: 128 * mib, Max: 1024 * gib,
			Help: "Amount of memory in bytes that the server tries not to exceed. The server divides " +
				"memory_limit among caches, buffers and the Go runtime. Very many simultaneous requests can " +
				"exceed memory_limit."},
			bind: func(c *Config) any { return &c.MemoryLimit }},

		{Key: Key{Name: "tls.cert", Type: Text,
			Help: "PEM file with the certificate chain of the server; requires tls.key. With a certificate, the " +
				"S3 address and the console address both use TLS. The server loads a changed certificate without " +
				"a restart."},
			bind: func(c *Config) any { return &c.TLS.Cert }},
		{Key: Key{Name: "tls.key", Type: Text,
			Help: "PEM file with the private key of the certificate in tls.cert. The server loads a changed " +
				"private key without a restart."},
			bind: func(c *Config) any { return &c.TLS.Key }},
		{Key: Key{Name: "tls.generate", Type: Bool, Default: "false",
			Help: "Make a self-signed certificate, store it in the directory tls of the data directory and print " +
				"its fingerprint."},
			bind: func(c *Config) any { return &c.TLS.Generate }},
		{Key: Key{Name: "tls.hosts", Type: List, Default: "localhost,127.0.0.1,::1",
			Help: "Host names and IP addresses in the certificate that tls.generate makes. The server also " +
				"adds the hosts of its addresses, the names in the setting domains and the name of the " +
				"machine to the generated certificate."},
			bind: func(c *Config) any { return &c.TLS.Hosts }, check: hostName},
		{Key: Key{Name: "tls.kernel", Type: Choice, Default: "auto", Choices: []string{"auto", "off"},
			Help: "Place where the S3 replies of TLS connections are encrypted: in the kernel if its tls module " +
				"is loaded (auto), or always in the program (off). If the kernel encrypts, the server sends files " +
				"with sendfile. Connections with TLS 1.2 or without AES-GCM are encrypted in the program."},
			bind: func(c *Config) any { return &c.TLS.Kernel }},

		{Key: Key{Name: "limits.connections", Type: Number, Default: "16384", Min: 1, Max: 1 << 20,
			Help: "Largest number of open connections to the S3 address; the server refuses further connections."},
			bind: func(c *Config) any { return &c.Limits.Connections }},
		{Key: Key{Name: "limits.requests", Type: Number, Default: "4096", Min: 1, Max: 1 << 20,
			Help: "Largest number of S3 requests in progress; the server answers further requests with 503 " +
				"SlowDown."},
			bind: func(c *Config) any { return &c.Limits.Requests }},
		{Key: Key{Name: "limits.header_bytes", Type: Size, Default: "8KiB", Min: 4 * kib, Max: mib,
			Help: "Largest size in bytes of the request line and the header of an S3 request; each idle " +
				"connection uses about this amount of memory."},
			bind: func(c *Config) any { return &c.Limits.HeaderBytes }},
		{Key: Key{Name: "limits.idle", Type: Duration, Default: "2m", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "Time after which the server closes an S3 connection that has no new request."},
			bind: func(c *Config) any { return &c.Limits.Idle }},
		{Key: Key{Name: "limits.header", Type: Duration, Default: "30s", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "Time in which a client must send the header of an S3 request."},
			bind: func(c *Config) any { return &c.Limits.Header }},
		{Key: Key{Name: "limits.stall", Type: Duration, Default: "1m", Min: int64(time.Second), Max: int64(24 * time.Hour),
			Help: "Time after which the server ends an S3 request if the client neither sends nor receives a " +
				"byte."},
			bind: func(c *Config) any { return &c.Limits.Stall }},

		{Key: Key{Name: "drain_timeout", Type: Duration, Default: "30s", Min: int64(100 * time.Millisecond),
			Max: int64(time.Hour),
			Help: "Time that requests in progress get to finish after SIGTERM, before the server closes their " +
				"connections."},
			bind: func(c *Config) any { return &c.DrainTimeout }},
		{Key: Key{Name: "scrub.interval", Type: Duration, Default: "168h", Min: 0, Max: int64(8760 * time.Hour),
			Help: "Time between two background scrubs, which read all content and compare it with its " +
				"checksums. A scrub.interval of 0 turns background scrubs off; the command nebulaio store " +
				"scrub still works."},
			bind: func(c *Config) any { return &c.Scrub.Interval }},
		{Key: Key{Name: "scrub.rate", Type: Size, Default: "32MiB", Min: 0, Max: 1024 * gib,
			Help: "Largest number of bytes per second that the background scrub reads; 0 means no limit."},
			bind: func(c *Config) any { return &c.Scrub.Rate }},
		{Key: Key{Name: "uploads.expire", Type: Duration, Default: "168h", Min: 0, Max: int64(87600 * time.Hour),
			Help: "Time after which the server aborts a multipart upload that gets no new part, and frees its " +
				"space; 0 means never."},
			bind: func(c *Config) any { return &c.Uploads.Expire }},

		{Key: Key{Name: "log_level", Type: Choice, Default: "info", Choices: []string{"debug", "info", "warn", "error"},
			Help: "Lowest level of the messages that the server logs."},
			bind: func(c *Config) any { return &c.LogLevel }},
		{Key: Key{Name: "log_format", Type: Choice, Default: "auto", Choices: []string{"auto", "text", "json"},
			Help: "Format of the server's log on standard error; auto means text on a terminal and JSON otherwise."},
			bind: func(c *Config) any { return &c.LogFormat }},
		{Key: Key{Name: "access_log", Type: Bool, Default: "false",
			Help: "Log every S3 request at level info, with its id, operation, status, bytes and duration. " +
				"Requests that fail because of an error in the server are always logged."},
			bind: func(c *Config) any { return &c.AccessLog }},
		{Key: Key{Name: "pprof", Type: Bool, Default: "false",
			Help: "Serve the profiles of the Go runtime under /debug/pprof/ of the console address. The " +
				"profiles show internals of the server to everybody who can reach the console address."},
			bind: func(c *Config) any { return &c.PProf }},

		{Key: Key{Name: "gpudirect.enabled", Type: Bool, Default: "false",
			Help: "Serve the door, the local socket for GPUDirect clients on this host. Clients of the door " +
				"get open files of objects from the server, and move the bytes between these files and GPU " +
				"memory themselves."},
			bind: func(c *Config) any { return &c.GPUDirect.Enabled }},
		{Key: Key{Name: "gpudirect.socket", Type: Text,
			Help: "Absolute path of the door's Unix socket, at most 107 bytes. If gpudirect.socket is not " +
				"set, the socket is gpudirect.sock in the data directory. The permissions of the socket's " +
				"directory decide which users can connect to the door. The access key of a client decides " +
				"which objects the client may read and write through the door."},
			bind: func(c *Config) any { return &c.GPUDirect.Socket }, check: socketPath},
		{Key: Key{Name: "gpudirect.buffer_pool_size", Type: Size, Default: "1GiB", Min: 16 * mib, Max: 64 * gib,
			Help: "Largest amount of host memory in bytes that a client of the door uses for staging " +
				"between files and GPUs. gpudirect.buffer_pool_size applies to clients that have not chosen " +
				"a size themselves. Clients use at most 128 MiB of staging memory by default, so a larger " +
				"gpudirect.buffer_pool_size has no effect. The door sends gpudirect.buffer_pool_size to its " +
				"clients; the server itself uses no staging memory."},
			bind: func(c *Config) any { return &c.GPUDirect.BufferPoolSize }},
		{Key: Key{Name: "gpudirect.enable_async", Type: Bool, Default: "true",
			Help: "Whether clients of the door may run transfers asynchronously. If gpudirect.enable_async " +
				"is false, the call that starts a transfer returns only when the transfer has ended. The " +
				"door sends gpudirect.enable_async to its clients, and the clients obey it."},
			bind: func(c *Config) any { return &c.GPUDirect.EnableAsync }},
		{Key: Key{Name: "gpudirect.device_ids", Type: List,
			Help: "Indices of the GPUs of this host that clients of the door may use, in the order of " +
				"nvidia-smi. If gpudirect.device_ids is not set, clients may use all GPUs. The door refuses " +
				"transfers to GPUs that gpudirect.device_ids does not list; transfers to host memory are " +
				"always allowed."},
			bind: func(c *Config) any { return &c.GPUDirect.DeviceIDs }, check: deviceIndex},
		{Key: Key{Name: "gpudirect.max_transfer_size", Type: Size, Default: "256MiB", Min: mib, Max: 1024 * gib,
			Help: "Largest range of an object in bytes that a client may ask the door for as one transfer; " +
				"the door refuses a longer range. A client moves an object that is larger than " +
				"gpudirect.max_transfer_size as several ranges in one request. gpudirect.max_transfer_size " +
				"does not set the size of the single reads and copies of which a transfer consists."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxTransferSize }},
		{Key: Key{Name: "gpudirect.enable_p2p", Type: Bool, Default: "true",
			Help: "Whether a client of the door may copy bytes directly from one GPU's memory to another " +
				"GPU's, if the driver allows it. If gpudirect.enable_p2p is false, a client that loads to " +
				"several GPUs copies the bytes from its staging memory to each GPU. The door sends " +
				"gpudirect.enable_p2p to its clients."},
			bind: func(c *Config) any { return &c.GPUDirect.EnableP2P }},
		{Key: Key{Name: "gpudirect.queue_depth", Type: Number, Default: "64", Min: 1, Max: 4096,
			Help: "Largest number of direct reads that a client of the door has in flight. gpudirect.queue_depth " +
				"applies to clients that have not chosen a depth themselves. Clients have at most 16 direct " +
				"reads in flight by default, so a larger gpudirect.queue_depth has no effect. The door sends " +
				"gpudirect.queue_depth to its clients."},
			bind: func(c *Config) any { return &c.GPUDirect.QueueDepth }},
		{Key: Key{Name: "gpudirect.idle_timeout", Type: Duration, Default: "5m", Min: int64(time.Second),
			Max: int64(24 * time.Hour),
			Help: "Time after which the door disconnects a client that sends nothing. On a disconnect, the door " +
				"closes the client's open objects and removes the objects that the client had not finished " +
				"writing."},
			bind: func(c *Config) any { return &c.GPUDirect.IdleTimeout }},
		{Key: Key{Name: "gpudirect.max_connections", Type: Number, Default: "1024", Min: 1, Max: 65536,
			Help: "Largest number of open connections to the door; the door refuses further connections."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxConnections }},
		{Key: Key{Name: "gpudirect.max_handles", Type: Number, Default: "16384", Min: 1, Max: 1 << 24,
			Help: "Largest number of objects that one access key may have open through the door, for reading or " +
				"writing. An open object occupies its space on the disk even after the object is deleted."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxHandles }},
		{Key: Key{Name: "gpudirect.max_draft_bytes", Type: Size, Default: "256GiB", Min: mib, Max: 1 << 20 * gib,
			Help: "Largest number of bytes on the disk that one access key may reserve for objects that it " +
				"writes through the door."},
			bind: func(c *Config) any { return &c.GPUDirect.MaxDraftBytes }},
		{Key: Key{Name: "gpudirect.read_only_mount", Type: Bool, Default: "true",
			Help: "Give clients of the door their files through a read-only mount of the data directory, so " +
				"that no client can reopen a file for writing. The read-only mount needs CAP_SYS_ADMIN and " +
				"Linux 5.12, and only the server process sees it. Without the read-only mount, root and " +
				"clients with the server's user ID can reopen a file for writing; the door warns such " +
				"clients at login."},
			bind: func(c *Config) any { return &c.GPUDirect.ReadOnlyMount }},
		{Key: Key{Name: "rdma.enabled", Type: Bool, Default: "false",
			Help: "Accepted and without effect: " + NoRDMA + "."},
			bind: func(c *Config) any { return &c.RDMA }},
	}
}
