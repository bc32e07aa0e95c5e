// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

var update = flag.Bool("update", false, "write docs/gpudirect-protocol.md anew")

// field is one field of a message as the documentation has it. The test reads
// example messages by these tables alone, so that the tables cannot be wrong.
type field struct {
	name, kind, about string
	of                []field // of a list
}

// form is the documentation of one message.
type form struct {
	msg     Message // an example
	from    string
	about   string
	answers string
	fields  []field
}

func nonceOf(b byte) (n [NonceSize]byte) {
	for i := range n {
		n[i] = b
	}
	return n
}

func forms() []form {
	device := []field{
		{"device index", "i32", "GPU, as the client counts; -1 is host memory", nil},
		{"device UUID", "text", "`GPU-…`, empty where not known", nil},
	}
	sums := field{"sums", "list", "one after the other", []field{{"sum", "u64", "CRC-64/NVME of one block of 1 MiB", nil}}}
	reports := field{"reports", "list", "what was moved, for the server's metrics", []field{
		{"write", "bool", "1: from the device to storage", nil}, {"device", "text", "`cuda:0`, `host`", nil},
		{"route", "text", "as in transfer reports; may be empty", nil},
		{"stage", "text", "`read`, `copy`, `write`", nil}, {"bytes", "i64", "", nil}, {"time", "span", "", nil}}}
	when := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	ch := &Challenge{Version: Version, Store: "1b4e28ba-2fa1-41d2-883f-0016d3cca427", Nonce: nonceOf(0xaa)}
	proof := &Proof{AccessKey: "minioadmin", Nonce: nonceOf(0xbb), Binding: Binding{BindSocket, 47365}}
	proof.MAC = ClientMAC("secret", ch, proof)
	smac := ServerMAC("secret", ch, proof)
	return []form{
		{&Hello{Min: MinVersion, Max: Version, Agent: "nebulaio"}, "client",
			"The first message. The server chooses the highest version that both speak.", "Challenge", []field{
				{"min", "u16", "lowest version that the client speaks", nil}, {"max", "u16", "highest", nil},
				{"agent", "text", "the program, for logs", nil}}},
		{ch, "server", "The version from now on, the store and a nonce.", "", []field{
			{"version", "u16", "", nil}, {"store", "text", "identity of the store; has to be the discovery's", nil},
			{"nonce", "raw32", "random, never used again", nil}}},
		{proof, "client", "Who the client is. A wrong secret and an unknown access key are answered alike, by Error " +
			"AccessDenied. A right MAC with another end than the server's own is answered by Error Relayed.", "Greeting",
			[]field{
				{"access key", "text", "", nil}, {"nonce", "raw32", "the client's own", nil},
				{"binding", "u8", "how the server's end is named: 1 socket, 2 process; see Login", nil},
				{"end", "u64", "its number, as the client sees it", nil}, {"MAC", "raw32", "see Login", nil}}},
		{&Greeting{MAC: smac, BufferPoolSize: 1 << 30, MaxTransferSize: 256 << 20, QueueDepth: 64, Async: true, P2P: true,
			Devices: []uint32{0, 1}, Writes: true, MaxHandles: 16384, MaxDraft: 256 << 30, Idle: 5 * time.Minute,
			Notes: []string{"read-only files can be reopened"}},
			"server", "The server's own MAC, which the client has to check, and what the configuration says.", "", []field{
				{"MAC", "raw32", "see Login", nil}, {"buffer_pool_size", "i64", "default for the client", nil},
				{"max_transfer_size", "i64", "enforced: no range of Open or Move is longer", nil},
				{"queue_depth", "u32", "default for the client", nil}, {"enable_async", "bool", "default for the client", nil},
				{"enable_p2p", "bool", "default for the client", nil},
				{"device_ids", "list", "GPUs that may be used, none: all; enforced", []field{{"index", "u32", "", nil}}},
				{"writes", "bool", "1: Create works here", nil},
				{"writes why", "text", "else why not", nil}, {"max handles", "u32",
					"handles and drafts of this access key together", nil},
				{"max draft", "i64", "bytes of all drafts of this access key", nil},
				{"idle", "span", "a connection that is silent for longer is ended", nil},
				{"notes", "list", "what this client should know of the server, in words", []field{{"note", "text", "", nil}}}}},
		{&Open{Want: WantBuffered | WantDirect | WantInline | WantSums, Device: Device{0, "GPU-1"},
			Items: []OpenItem{{"models", "a.bin", "", 0, -1}}}, "client",
			"Objects to read, up to 1024 of them. Want: 1 a description through the page cache, 2 one past it, 4 content " +
				"inside the reply where it lies with the metadata, 8 sums, 16 the description of the object alone.",
			"one Opened or more", []field{
				{"want", "u8", "bits, see above", nil}, device[0], device[1],
				{"objects", "list", "", []field{{"bucket", "text", "", nil}, {"key", "text", "", nil},
					{"version", "text", "empty: the current one", nil},
					{"offset", "i64", "of the range that is read first", nil},
					{"length", "i64", "-1: to the end, or as far as max_transfer_size allows", nil}}}}},
		{&Opened{First: 0, Items: []OpenedItem{{Handle: 1, Size: 5 << 20, ETag: "0011-1", CRC64: 0x1122334455667788,
			Modified: when, N: 5 << 20, Has: 3, Sums: []uint64{1, 2, 3, 4, 5}},
			{Err: &Error{Kind: uint8(errs.NotFound), Code: CodeNoSuchKey, Message: "open models/b.bin: no such key",
				Fix: "list the bucket"}}}},
			"server", "Some of the objects, in order; the flag 1 of the header says that more packets follow. The " +
				"descriptors come with the packet, in the order of the objects, and for each first the one through the page cache.",
			"", []field{
				{"first", "u32", "place in the request of the first object here", nil},
				{"objects", "list", "", []field{{"failed", "failed",
					"1: kind, code, message and fix of an Error follow, and nothing else", nil},
					{"handle", "u64", "names it in later requests; 0: nothing is held", nil}, {"size", "i64", "", nil},
					{"ETag", "text", "", nil}, {"CRC-64/NVME", "u64", "of the whole content", nil},
					{"version", "text", "empty in a bucket without versions", nil}, {"modified", "time", "", nil},
					{"offset", "i64", "of the range that was granted", nil}, {"length", "i64", "", nil},
					{"is inline", "bool", "1: the content follows", nil}, {"inline", "text", "the whole content", nil},
					{"has", "u8", "which descriptors come: 1, 2", nil},
					{"refused", "text", "why there is no description past the page cache", nil},
					{"first sum", "i64", "block of the first sum here", nil}, sums}}}},
		{&Move{Handle: 1, Device: Device{Index: -1}, Ranges: []Range{{1 << 20, 1 << 20}}}, "client",
			"Further ranges of an object, or ranges of a draft, that are going to be moved.", "Ack", []field{
				{"handle", "u64", "", nil}, device[0], device[1],
				{"ranges", "list", "", []field{{"offset", "i64", "", nil}, {"length", "i64", "at most max_transfer_size", nil}}}}},
		{&Sums{Handle: 1, First: 8192, N: 100}, "client", "Sums that did not fit into Opened.", "SumsReply",
			[]field{{"handle", "u64", "", nil}, {"first", "i64", "block", nil}, {"number", "i64", "at most 8192 come", nil}}},
		{&SumsReply{First: 8192, Sums: []uint64{7}}, "server", "", "",
			[]field{{"first", "i64", "block of the first sum", nil}, sums}},
		{&Close{Handles: []uint64{1}, Reports: []Report{{false, "cuda:0", "page_cache", "read", 5 << 20,
			90 * time.Microsecond}}}, "client", "Lets go of objects. The descriptors that the client has stay good.", "Ack",
			[]field{
				{"handles", "list", "", []field{{"handle", "u64", "", nil}}}, reports}},
		{&Create{Bucket: "models", Key: "new.bin", Size: 1 << 20, Device: Device{Index: -1}, Want: 3,
			ContentType: "application/octet-stream", Metadata: []Pair{{"step", "7"}}, IfNoneMatch: "*"}, "client",
			"A new object, of which at most size bytes will be written.", "Created",
			[]field{{"bucket", "text", "", nil}, {"key", "text", "", nil}, {"size", "i64", "so much is reserved", nil},
				device[0], device[1],
				{"want", "u8", "1, 2 or both: descriptions for writing", nil}, {"content type", "text", "", nil},
				{"metadata", "list", "", []field{{"name", "text", "without x-amz-meta-", nil}, {"value", "text", "", nil}}},
				{"if match", "text", "an ETag; judged at Commit", nil},
				{"if none match", "text", "`*`: only where there is no object", nil}}},
		{&Created{Handle: 2, Has: 1, Refused: "no O_DIRECT", Path: "/data/tmp/2"}, "server",
			"The descriptors come with the packet.", "", []field{{"handle", "u64", "", nil}, {"has", "u8", "1, 2", nil},
				{"refused", "text", "why there is no description past the page cache", nil},
				{"path", "text", "of the file, for messages", nil}}},
		{&AddSums{Handle: 2, First: 0, Sums: []uint64{1}}, "client",
			"Sums ahead of Commit, in order, where there are more than fit into it.", "Ack",
			[]field{{"handle", "u64", "", nil}, {"first", "i64", "block of the first sum here", nil}, sums}},
		{&Commit{Handle: 2, Size: 1 << 20, CRC64: 9, First: 0, Sums: []uint64{9}}, "client",
			"Publishes what was written, when every descriptor of it is closed. WriterLeft and BadSums leave the draft as it " +
				"was; any other error ends it.", "Committed", []field{
				{"handle", "u64", "", nil}, {"size", "i64", "bytes of the object", nil},
				{"CRC-64/NVME", "u64", "of the whole content", nil}, {"first", "i64", "block of the first sum here", nil}, sums,
				reports}},
		{&Committed{ETag: "0000000000000009-1", Version: "", Modified: when}, "server", "The object is durable and visible.",
			"", []field{{"ETag", "text", "", nil}, {"version", "text", "", nil}, {"modified", "time", "", nil}}},
		{&Abort{Handle: 2}, "client", "Ends a draft without a trace.", "Ack", []field{{"handle", "u64", "", nil}}},
		{&List{Bucket: "models", Prefix: "llama/", Delimiter: "/", After: "", Limit: 1000}, "client", "One page of a bucket.",
			"Listed", []field{{"bucket", "text", "", nil}, {"prefix", "text", "", nil}, {"delimiter", "text", "", nil},
				{"after", "text", "leaves out what comes before and itself", nil}, {"limit", "u32", "at most 1000, 0: 1000", nil}}},
		{&Listed{Items: []ListedItem{{"llama/a", "0011-1", 7, when}}, Prefixes: []string{"llama/x/"}, Truncated: true,
			Next: "llama/x/"}, "server", "May have fewer entries than were asked for.", "", []field{
			{"objects", "list", "", []field{{"key", "text", "", nil}, {"ETag", "text", "", nil}, {"size", "i64", "", nil},
				{"modified", "time", "", nil}}}, {"prefixes", "list", "", []field{{"prefix", "text", "", nil}}},
			{"truncated", "bool", "1: there is more", nil}, {"next", "text", "`after` of the next page", nil}}},
		{&Ping{}, "client", "Keeps a silent connection.", "Ack", nil},
		{&Ack{}, "server", "Answers requests that have nothing else to say.", "", nil},
		{&Error{Kind: uint8(errs.Permission), Code: CodeAccessDenied, Message: "s3:GetObject models/a.bin is not allowed",
			Fix: "ask its owner"}, "server", "Why a request failed; with the number 0, why the server ends the connection.", "",
			[]field{
				{"kind", "u8", "see below", nil}, {"code", "text", "for programs, see below", nil}, {"message", "text", "", nil},
				{"fix", "text", "what to do", nil}}},
	}
}

// walker reads a message by its documented fields.
type walker struct {
	b    []byte
	rows []string
	err  error
}

func (w *walker) take(n int) []byte {
	if n < 0 || n > len(w.b) {
		if w.err == nil {
			w.err = fmt.Errorf("%d bytes wanted, %d left", n, len(w.b))
		}
		return make([]byte, max(n, 8))
	}
	b := w.b[:n]
	w.b = w.b[n:]
	return b
}

func (w *walker) row(b []byte, text string, f field) {
	for text = f.name + text; ; text = "" {
		n := min(len(b), 16)
		w.rows = append(w.rows, strings.TrimRight(fmt.Sprintf("%-50s %s", fmt.Sprintf("% x", b[:n]), text), " "))
		if b = b[n:]; len(b) == 0 {
			return
		}
	}
}

func (w *walker) walk(fields []field) {
	for _, f := range fields {
		switch f.kind {
		case "u8", "bool":
			b := w.take(1)
			w.row(b, fmt.Sprintf(" = %d", b[0]), f)
		case "failed":
			b := w.take(1)
			w.row(b, fmt.Sprintf(" = %d", b[0]), f)
			if b[0] == 1 {
				w.walk([]field{{"kind", "u8", "", nil}, {"code", "text", "", nil}, {"message", "text", "", nil},
					{"fix", "text", "", nil}})
				return
			}
		case "u16", "u32", "i32", "u64", "i64":
			b := w.take(map[string]int{"u16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8}[f.kind])
			u := binary.LittleEndian.Uint64(append(bytes.Clone(b), make([]byte, 8-len(b))...))
			text := fmt.Sprintf(" = %d", u)
			switch f.kind {
			case "i32":
				text = fmt.Sprintf(" = %d", int32(u))
			case "i64":
				text = fmt.Sprintf(" = %d", int64(u))
			}
			w.row(b, text, f)
		case "time":
			b := w.take(8)
			w.row(b, " = "+time.Unix(0, int64(binary.LittleEndian.Uint64(b))).UTC().Format(time.RFC3339Nano), f)
		case "span":
			b := w.take(8)
			w.row(b, " = "+time.Duration(binary.LittleEndian.Uint64(b)).String(), f)
		case "raw32":
			w.row(w.take(32), "", f)
		case "text":
			b := w.take(4)
			n := int(binary.LittleEndian.Uint32(b))
			w.row(b, fmt.Sprintf(": %d bytes", n), f)
			if n > 0 {
				b := w.take(n)
				w.row(b, fmt.Sprintf("%q", b), field{})
			}
		case "list":
			b := w.take(4)
			n := int(binary.LittleEndian.Uint32(b))
			w.row(b, fmt.Sprintf(": %d", n), f)
			for range min(n, 100) {
				w.walk(f.of)
			}
		default:
			w.err = fmt.Errorf("%s has the unknown kind %q", f.name, f.kind)
		}
	}
}

func tableOf(b *strings.Builder, fields []field, indent string) {
	for _, f := range fields {
		kind := f.kind
		switch kind {
		case "raw32":
			kind = "32 bytes"
		case "failed":
			kind = "bool"
		}
		fmt.Fprintf(b, "| %s%s | %s | %s |\n", indent, f.name, kind, f.about)
		tableOf(b, f.of, indent+"· ")
	}
}

// TestTheProtocolIsDocumentedByteByByte: docs/gpudirect-protocol.md is made of the tables above, which read the example
// of each message to its last byte; its bytes are those of version 1 for ever. After a change: go test
// ./internal/gpudirect/wire -update
func TestTheProtocolIsDocumentedByteByByte(t *testing.T) {
	const path = "../../../docs/gpudirect-protocol.md"
	var b strings.Builder
	b.WriteString(preface)
	seen := map[Type]bool{}
	for _, f := range forms() {
		typ := f.msg.Type()
		seen[typ] = true
		packet, err := Append(nil, Header{Request: 7}, f.msg)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		w := &walker{b: packet[HeaderSize:]}
		w.walk(f.fields)
		if w.err != nil || len(w.b) > 0 {
			t.Errorf("%v: %v, %d bytes are not documented", typ, w.err, len(w.b))
		}
		fmt.Fprintf(&b, "### %d: %v (%s)\n\n", typ, typ, f.from)
		if f.about != "" {
			fmt.Fprintf(&b, "%s", f.about)
			if f.answers != "" {
				fmt.Fprintf(&b, " Answered by %s.", f.answers)
			}
			b.WriteString("\n\n")
		} else if f.answers != "" {
			fmt.Fprintf(&b, "Answered by %s.\n\n", f.answers)
		}
		if len(f.fields) > 0 {
			b.WriteString("| field | type | meaning |\n|---|---|---|\n")
			tableOf(&b, f.fields, "")
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "```text\n%-50s header: type %d, flags %d, descriptors %d, request %d\n%s```\n\n",
			fmt.Sprintf("% x", packet[:HeaderSize]), packet[0], packet[1],
			binary.LittleEndian.Uint16(packet[2:]), binary.LittleEndian.Uint32(packet[4:]),
			strings.Join(append(w.rows, ""), "\n"))
	}
	for _, typ := range types() {
		if !seen[typ] {
			t.Errorf("%v is not documented", typ)
		}
	}
	b.WriteString("## Errors\n\nThe kind is one of ")
	for i, k := range errs.Kinds() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %v", k, k)
	}
	b.WriteString(".\nThe codes; a client that does not know one goes by the kind:\n\n")
	for _, c := range Codes() {
		fmt.Fprintf(&b, "`%s` ", c)
	}
	b.WriteString("\n\nThis page is made by `go test ./internal/gpudirect/wire -update` and checked by the same test.\n")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/gpudirect-protocol.md is not what the protocol is: where it was meant to change, its version has to " +
			"change too; go test ./internal/gpudirect/wire -update")
	}
}

var preface = fmt.Sprintf(`# The protocol of the GPUDirect door, version %d

A client on the server's own host asks for objects over a Unix socket and gets open files; it moves the bytes between
them and GPU memory itself. The S3 endpoint tells where the socket is: `+"`GET /.nebulaio/gpudirect`"+`, signed
(AWS Signature Version 4, service `+"`s3`, region `us-east-1`"+
	` or the server's own) with the keys of an account, answers

`+"```json"+`
{"version":1,"enabled":true,"socket":"/var/lib/nebulaio/gpudirect.sock","store":"1b4e28ba-2fa1-41d2-883f-0016d3cca427","reason":"","fix":""}
`+"```"+`

Without a signature, the answer has `+"`enabled` false, neither `socket` nor `store`"+
	`, and the reason. A signature that is not right is
answered 403 with an error of S3.

The socket is of type SOCK_SEQPACKET: one packet is one message, of at most %d bytes, and descriptors travel with the
packet that tells of them (SCM_RIGHTS), at most %d. Everything is little-endian. A packet begins with 8 bytes:

| bytes | meaning |
|---|---|
| 0 | type of the message |
| 1 | flags: 1 in a reply says that further replies to the same request follow |
| 2-3 | number of descriptors that come with it; 0 in a request |
| 4-7 | number of the request, chosen by the client, from 1 on; replies repeat it |

Types of fields: u8, u16, u32, u64, i32, i64 (two's complement), bool (one byte, 0 or 1), time (i64, nanoseconds since 1970; the smallest
number is no time), span (i64, nanoseconds), text (u32 length and as many bytes), list (u32 number and as many entries).
Bounds: a name (bucket, key, version, ETag, access key …) has at most %d bytes, another text %d, content inside a reply %d; a list has at most
%d objects, handles or entries, %d sums, %d ranges, %d reports, %d pairs of metadata, %d devices, %d notes. What is beyond a bound, ends early or goes on
behind its end is answered by Error BadMessage, and the connection ends.

Requests of one connection are answered in order; a client may send several without waiting. What a connection holds ends with it: objects are let
go of, drafts are removed. A silent connection ends after the greeting's idle time; any request, Ping too, keeps it.

## Login

`+"```text"+`
client  Hello      versions that it speaks
server  Challenge  the version that is spoken, the store, a nonce
client  Proof      access key, a nonce of its own, the server's end of the connection, MAC
server  Greeting   the server's MAC, settings, bounds
`+"```"+`

A MAC is HMAC-SHA256, keyed with the secret of the access key, over: text "nebulaio door", text "client" (in Proof) or "server" (in Greeting), u16 version,
text store, text access key, the server's nonce, the client's nonce, u8 binding, u64 end. The secret does not cross, a proof is good for one challenge, and a
client does not believe a server whose MAC is wrong.

The binding keeps a login from being relayed by somebody who listens in the server's place and passes every packet on. The client names the
server's end of its own connection, as its kernel knows it, after the Challenge has come. Behind a relay that is the relay's end. The server compares it with its own.

| binding | end | who needs what |
|---|---|---|
| 1 socket | inode number of the server's accepted socket (fstat) | the client asks NETLINK_SOCK_DIAG for the peer of its own socket, by inode and cookie (unix_diag) |
| 2 process | inode number in pidfs of the server's process | the client asks SO_PEERPIDFD; Linux 6.9 on both sides |

Both numbers are the same in every PID, user, network and mount namespace, and both show a relay. A client takes the first that its kernel answers. Where
there is none it does not log in. Inode numbers of sockets have 32 bits: a client gives up when the Challenge has not come after %s, and a server when the
Proof has not come after its login time, so that they cannot come round in between. A client also refuses a listener whose user (SO_PEERCRED) is neither root,
nor its own, nor the owner of the socket's file.

Version 1 had no binding and is not spoken any more. A client or server that speaks nothing else gets Error Version.

## Messages

Each with its fields and the bytes of an example.

`, Version, MaxMessage, MaxDescriptors, MaxName, MaxText, MaxInline, MaxItems, MaxSums, MaxRanges, MaxReports,
	MaxMetadata, MaxDevices, MaxNotes, ChallengeTime)
