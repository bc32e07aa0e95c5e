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
		{"device index", "i32", "index of the GPU in the client's own numbering; -1 means host memory", nil},
		{"device UUID", "text", "UUID of the GPU (`GPU-…`); empty if it is not known", nil},
	}
	sums := field{"sums", "list", "checksums of consecutive blocks of the object",
		[]field{{"sum", "u64", "CRC-64/NVME of one block of 1 MiB", nil}}}
	reports := field{"reports", "list", "transfers that the client " +
		"made; the server counts them in its metrics", []field{
		{"write", "bool", "1 for a transfer from the device to storage, 0 for one from storage to the device", nil},
		{"device", "text", "`cuda:0`, `host`", nil},
		{"route", "text", "route of the transferred bytes, as in transfer " +
			"reports; empty for a stage without a route", nil},
		{"stage", "text", "`read`, `copy`, `write`", nil}, {"bytes", "i64", "", nil}, {"time", "span", "", nil}}}
	when := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	ch := &Challenge{Version: Version, Store: "1b4e28ba-2fa1-41d2-883f-0016d3cca427", Nonce: nonceOf(0xaa)}
	proof := &Proof{AccessKey: "minioadmin", Nonce: nonceOf(0xbb), Binding: Binding{BindSocket, 47365}}
	proof.MAC = ClientMAC("secret", ch, proof)
	smac := ServerMAC("secret", ch, proof)
	return []form{
		{&Hello{Min: MinVersion, Max: Version, Agent: "nebulaio"}, "client",
			"Hello is the first message of a connection. The server chooses the " +
				"highest version of the protocol that both sides support.",
			"Challenge", []field{
				{"min", "u16", "lowest version of the protocol that the client supports", nil},
				{"max", "u16", "highest version of the protocol that the client supports", nil},
				{"agent", "text", "name of the client program, for logs", nil}}},
		{ch, "server", "Challenge tells the protocol version of all further " +
			"messages, the UUID of the store and a nonce.", "", []field{
			{"version", "u16", "", nil},
			{"store", "text", "UUID of the store; must equal `store` in " +
				"the S3 endpoint's answer to `GET /.nebulaio/gpudirect`", nil},
			{"nonce", "raw32", "32 random bytes of the server, new for each login", nil}}},
		{proof, "client", "Proof has the client's access key and MAC. The server answers a wrong secret and an " +
			"unknown access key with the same Error AccessDenied. If the MAC is right, but the field `end` names " +
			"another end than the server's own, the server answers Error Relayed.", "Greeting",
			[]field{
				{"access key", "text", "", nil},
				{"nonce", "raw32", "32 random bytes of the client, new for each login", nil},
				{"binding", "u8", "how the field `end` names the server's end of the connection: 1 by its socket, 2 " +
					"by its process (see Login)", nil},
				{"end", "u64", "inode number of the server's socket or process, " +
					"as the client's kernel reports it", nil}, {"MAC", "raw32", "see Login", nil}}},
		{&Greeting{MAC: smac, BufferPoolSize: 1 << 30, MaxTransferSize: 256 << 20, QueueDepth: 64, Async: true, P2P: true,
			Devices: []uint32{0, 1}, Writes: true, MaxHandles: 16384, MaxDraft: 256 << 30, Idle: 5 * time.Minute,
			Notes: []string{"read-only files can be reopened"}},
			"server", "Greeting has the server's MAC, which the client must " +
				"check, and settings of the server's configuration.", "", []field{
				{"MAC", "raw32", "see Login", nil},
				{"buffer_pool_size", "i64", "default size of a client's staging memory, in bytes", nil},
				{"max_transfer_size", "i64", "largest length of one range in an Open " +
					"or a Move, in bytes; the server refuses longer ranges", nil},
				{"queue_depth", "u32", "default of the largest number of " +
					"direct reads that a client has in flight", nil},
				{"enable_async", "bool", "1 if, by default, asynchronous " +
					"calls of a client return before the transfer ends", nil},
				{"enable_p2p", "bool", "1 if, by default, a client copies an object from GPU to GPU when it reads " +
					"the object into several GPUs", nil},
				{"device_ids", "list", "indices of the GPUs that clients may use; an empty list means all",
					[]field{{"index", "u32", "", nil}}},
				{"writes", "bool", "1 if clients may write objects through the door (message Create)", nil},
				{"writes why", "text", "reason why clients may not write objects " +
					"through the door; empty if they may", nil},
				{"max handles", "u32", "largest number of objects and " +
					"drafts that one access key may have open", nil},
				{"max draft", "i64", "largest size of all drafts of one access key together, in bytes", nil},
				{"idle", "span", "time without a request after which the server ends the connection", nil},
				{"notes", "list", "warnings for this client, such as a " +
					"protection that the server could not set up", []field{{"note", "text", "", nil}}}}},
		{&Open{Want: WantBuffered | WantDirect | WantInline | WantSums, Device: Device{0, "GPU-1"},
			Items: []OpenItem{{"models", "a.bin", "", 0, -1}}}, "client",
			"Open asks the server to open up to 1024 objects for reading. The field `want` of an Open is a sum of " +
				"bits. Bit 1 of `want` asks for a file descriptor that reads through the page cache, bit 2 for a " +
				"descriptor with O_DIRECT. Bit 4 of `want` asks for the content inside the reply, if the server " +
				"stores the content with its metadata. Bit 8 of `want` asks for the block checksums of the range. " +
				"Bit 16 of `want` asks only for the object's size, ETag and other metadata, without a handle.",
			"one or more Opened messages", []field{
				{"want", "u8", "what the client asks for, as a " +
					"sum of the bits 1, 2, 4, 8 and 16", nil}, device[0], device[1],
				{"objects", "list", "", []field{{"bucket", "text", "", nil}, {"key", "text", "", nil},
					{"version", "text", "version of the object; empty for the current version", nil},
					{"offset", "i64", "offset of the range that the client reads first", nil},
					{"length", "i64", "length of the range in bytes; -1 means up " +
						"to the end of the object, but at most max_transfer_size", nil}}}}},
		{&Opened{First: 0, Items: []OpenedItem{{Handle: 1, Size: 5 << 20, ETag: "0011-1", CRC64: 0x1122334455667788,
			Modified: when, N: 5 << 20, Has: 3, Sums: []uint64{1, 2, 3, 4, 5}, Served: "hit", Age: 7,
			Verified: "crc64nvme"},
			{Err: &Error{Kind: uint8(errs.NotFound), Code: CodeNoSuchKey, Message: "open models/b.bin: no such key",
				Fix: "list the bucket"}}}},
			"server", "Opened describes objects of an Open request, in the order of the request. If flag 1 is set in " +
				"the header of an Opened packet, further Opened packets for the same request follow. The file " +
				"descriptors of the objects come with the Opened packet, in the order of the objects. If an object " +
				"has two descriptors, the one that reads through the page cache comes before the one with O_DIRECT.",
			"", []field{
				{"first", "u32", "index in the Open request of the first object in this packet", nil},
				{"objects", "list", "", []field{{"failed", "failed", "1 if the object was not opened; then only the " +
					"fields kind, code, message and fix of an Error follow", nil},
					{"handle", "u64", "number that names the open object in later " +
						"requests; 0 if the server keeps nothing open", nil},
					{"size", "i64", "", nil},
					{"ETag", "text", "", nil},
					{"CRC-64/NVME", "u64", "CRC-64/NVME of the whole content of the object", nil},
					{"version", "text", "version of the object; empty in a bucket without versioning", nil},
					{"modified", "time", "", nil},
					{"offset", "i64", "offset of the range that the server granted for the first read", nil},
					{"length", "i64", "length in bytes of the range that the server granted for the first read", nil},
					{"is inline", "bool", "1 if the field `inline` has the content of the object", nil},
					{"inline", "text", "whole content of the object, if the field `is inline` is 1", nil},
					{"has", "u8", "which file descriptors come with this packet, " +
						"as a sum of bits: 1 for the page cache, 2 for O_DIRECT", nil},
					{"refused", "text", "reason why the server sent no descriptor " +
						"with O_DIRECT, although the client asked for one", nil},
					{"first sum", "i64", "index of the block that the first entry of `sums` belongs to", nil}, sums,
					{"served", "text", "`hit` or `stale` if another S3 server keeps the object, else empty", nil},
					{"age", "i64", "seconds since the other S3 server was asked about the object", nil},
					{"verified", "text", "how the whole content was compared, such as `crc64nvme`", nil}}}}},
		{&Move{Handle: 1, Device: Device{Index: -1}, Ranges: []Range{{1 << 20, 1 << 20}}}, "client",
			"Move announces ranges of a draft, or ranges of an open object beyond " +
				"the range of its Open, before the client transfers them. A range behind the end of a draft that grows raises " +
				"the largest size of the draft.",
			"Ack", []field{
				{"handle", "u64", "", nil}, device[0], device[1],
				{"ranges", "list", "", []field{{"offset", "i64", "", nil},
					{"length", "i64", "length of the range in bytes, at most max_transfer_size", nil}}}}},
		{&Sums{Handle: 1, First: 8192, N: 100}, "client", "Sums asks for block " +
			"checksums of an open object that did not fit into Opened.", "SumsReply",
			[]field{{"handle", "u64", "", nil},
				{"first", "i64", "index of the first block whose checksum the client asks for", nil},
				{"number", "i64", "number of checksums that the client asks for; the reply has at most 8192", nil}}},
		{&SumsReply{First: 8192, Sums: []uint64{7}}, "server", "SumsReply has block checksums of an open object.", "",
			[]field{{"first", "i64", "index of the block that the first entry of `sums` belongs to", nil}, sums}},
		{&Close{Handles: []uint64{1}, Reports: []Report{{false, "cuda:0", "page_cache", "read", 5 << 20,
			90 * time.Microsecond}}}, "client", "Close closes handles of open objects. File descriptors that the " +
			"client has received stay valid after Close.", "Ack",
			[]field{
				{"handles", "list", "", []field{{"handle", "u64", "", nil}}}, reports}},
		{&Create{Bucket: "models", Key: "new.bin", Size: 1 << 20, Device: Device{Index: -1}, Want: 3,
			ContentType: "application/octet-stream", Metadata: []Pair{{"step", "7"}}, IfNoneMatch: "*", Source: 1, Grows: true},
			"client", "Create begins a draft, which is a new object that the client writes and later commits. A draft with a " +
				"source begins as a private copy of an open object.", "Created",
			[]field{{"bucket", "text", "", nil}, {"key", "text", "", nil},
				{"size", "i64", "largest size of the new object in bytes; the server reserves as much disk space", nil},
				device[0], device[1],
				{"want", "u8", "which descriptors for writing the client asks for, " +
					"as a sum of bits: 1 for the page cache, 2 for O_DIRECT", nil},
				{"content type", "text", "", nil},
				{"metadata", "list", "", []field{{"name", "text", "name of an " +
					"entry of the user metadata, without `x-amz-meta-`", nil},
					{"value", "text", "", nil}}},
				{"if match", "text", "ETag that the current object must have at Commit; empty for no condition", nil},
				{"if none match", "text", "`*` if Commit must fail when an object with this key exists", nil},
				{"source", "u64", "handle of an open object of the connection, whose content the draft begins with; 0 for an " +
					"empty draft. If the fields content type and metadata are empty, the new object keeps the headers, metadata " +
					"and tags of the source", nil},
				{"grows", "bool", "1 if the descriptors read and write, and if a Move behind the end raises the largest size of " +
					"the draft; must be 1 with a source. A draft that grows is as long as its source, and the server reserves no " +
					"disk space for it", nil}}},
		{&Created{Handle: 2, Has: 1, Refused: "no O_DIRECT", Path: "/data/tmp/2", Copied: 1 << 20}, "server",
			"Created has the handle of a new draft. The file descriptors of the " +
				"new draft come with the Created packet.", "", []field{
				{"handle", "u64", "number that names the draft in later requests", nil},
				{"has", "u8", "which file descriptors come with this packet, as a sum " +
					"of bits: 1 for the page cache, 2 for O_DIRECT", nil},
				{"refused", "text", "reason why the server sent no descriptor " +
					"with O_DIRECT, although the client asked for one", nil},
				{"path", "text", "path of the draft's file, for error messages", nil},
				{"copied", "i64", "number of bytes that the server copied from the source; 0 if the file system lets the two " +
					"files share their blocks", nil}}},
		{&AddSums{Handle: 2, First: 0, Sums: []uint64{1}}, "client",
			"AddSums sends block checksums of a draft before Commit, in the order of " +
				"the blocks, if not all fit into the Commit.", "Ack",
			[]field{{"handle", "u64", "", nil},
				{"first", "i64", "index of the block that the first entry of `sums` belongs to", nil}, sums}},
		{&Commit{Handle: 2, Size: 1 << 20, CRC64: 9, First: 0, Sums: []uint64{9}}, "client",
			"Commit publishes a draft as an object. Before Commit, the client closes every file descriptor of the " +
				"draft. If Commit fails with WriterLeft or BadSums, the draft stays as it was. If Commit fails with " +
				"any other error, the server removes the draft.",
			"Committed", []field{
				{"handle", "u64", "", nil}, {"size", "i64", "size of the object in bytes", nil},
				{"CRC-64/NVME", "u64", "CRC-64/NVME of the whole content of the object", nil},
				{"first", "i64", "index of the block that the first entry of `sums` belongs to", nil}, sums,
				reports}},
		{&Committed{ETag: "0000000000000009-1", Version: "", Modified: when}, "server",
			"Committed means that the object of the Commit is durable and visible.",
			"", []field{{"ETag", "text", "", nil}, {"version", "text", "", nil}, {"modified", "time", "", nil}}},
		{&Abort{Handle: 2}, "client", "Abort removes a draft; " +
			"nothing of the draft remains in the store.", "Ack", []field{{"handle", "u64", "", nil}}},
		{&List{Bucket: "models", Prefix: "llama/", Delimiter: "/", After: "", Limit: 1000}, "client",
			"List asks for one page of a bucket's keys.",
			"Listed", []field{{"bucket", "text", "", nil}, {"prefix", "text", "", nil}, {"delimiter", "text", "", nil},
				{"after", "text", "the page begins with the first key that sorts " +
					"after this text; empty for the first page", nil},
				{"limit", "u32", "largest number of keys and prefixes " +
					"on the page, up to 1000; 0 means 1000", nil}}},
		{&Listed{Items: []ListedItem{{"llama/a", "0011-1", 7, when}}, Prefixes: []string{"llama/x/"}, Truncated: true,
			Next: "llama/x/"}, "server", "Listed has one page of a bucket's keys. A page may have fewer entries than " +
			"the limit in the List request.", "", []field{
			{"objects", "list", "", []field{{"key", "text", "", nil}, {"ETag", "text", "", nil},
				{"size", "i64", "", nil},
				{"modified", "time", "", nil}}}, {"prefixes", "list", "", []field{{"prefix", "text", "", nil}}},
			{"truncated", "bool", "1 if the listing has further pages", nil},
			{"next", "text", "value of the field `after` in the request for the next page", nil}}},
		{&Ping{}, "client", "Ping keeps a connection open while the client has no other requests.", "Ack", nil},
		{&Ack{}, "server", "Ack is the reply to a request that succeeded and returns no data.", "", nil},
		{&Error{Kind: uint8(errs.Permission), Code: CodeAccessDenied,
			Message: "s3:GetObject models/a.bin is not allowed", Fix: "ask its owner"}, "server",
			"Error says why a request failed. An Error with request number 0 answers no request: it says why the " +
				"server ends the connection.", "",
			[]field{
				{"kind", "u8", "number of the error's kind; the section Errors lists all kinds", nil},
				{"code", "text", "code of the error for programs; the section Errors lists all codes", nil},
				{"message", "text", "", nil},
				{"fix", "text", "advice on what to do about the error", nil}}},
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

// TestTheProtocolIsDocumentedByteByByte: docs/gpudirect-protocol.md is made of the tables above. The tables read the
// example of each message to its last byte. The bytes of a protocol version never change. After a change of a text, run
// go test ./internal/gpudirect/wire -update.
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
				fmt.Fprintf(&b, " The reply to %v is %s.", typ, f.answers)
			}
			b.WriteString("\n\n")
		} else if f.answers != "" {
			fmt.Fprintf(&b, "The reply to %v is %s.\n\n", typ, f.answers)
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
	b.WriteString("## Errors\n\nAn error has one of these kinds:\n\n| number | kind |\n|---|---|\n")
	for _, k := range errs.Kinds() {
		fmt.Fprintf(&b, "| %d | %v |\n", k, k)
	}
	b.WriteString("\nIf a client does not know the code of an error, it handles the error by its kind. The codes of " +
		"errors are:\n\n```text\n")
	for _, c := range Codes() {
		fmt.Fprintf(&b, "%s\n", c)
	}
	b.WriteString("```")
	b.WriteString("\n\nThe command `go test ./internal/gpudirect/wire -update` writes this page. Without `-update`, " +
		"this test command compares the page with the code.\n")
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
		t.Error("docs/gpudirect-protocol.md is not what the protocol is: where it was meant to change, its version " +
			"has to " +
			"change too; go test ./internal/gpudirect/wire -update")
	}
}

var preface = fmt.Sprintf(`# The protocol of the GPUDirect door, version %d

A client on the server's own host asks for objects over a Unix socket and receives open file descriptors. The client
moves the bytes between the files and GPU memory itself. The S3 endpoint tells the path of the socket in the answer to
`+"`GET /.nebulaio/gpudirect`"+`. The client signs the request for the socket's path with the keys of an account: AWS
Signature Version 4, service `+"`s3`, region `us-east-1`"+` or the server's own. The S3 endpoint
answers the request for the socket's path with JSON:

`+"```json"+`
{"version":1,"enabled":true,"socket":"/var/lib/nebulaio/gpudirect.sock","store":"1b4e28ba-2fa1-41d2-883f-0016d3cca427","reason":"","fix":""}
`+"```"+`

If the request for the socket's path is not signed, the answer has `+"`enabled`"+` false and a reason, and neither
`+"`socket` nor `store`"+`. If the signature of the request for the socket's path is wrong, the S3 endpoint answers with
status 403 and an S3 error.

The door's socket is of type SOCK_SEQPACKET: one packet is one message, of at most %d bytes. File descriptors travel
with the packet that describes them (SCM_RIGHTS), at most %d in one packet. All numbers in a packet are little-endian. A
packet begins with a header of 8 bytes:

| bytes | meaning |
|---|---|
| 0 | type of the message in the packet |
| 1 | flags of the packet; flag 1 in a reply means that further replies to the same request follow |
| 2-3 | number of descriptors that come with the packet; 0 in a request |
| 4-7 | number of the request, at least 1; the client chooses the number, and each reply repeats it |

The fields of a message have these types:

| type | encoding |
|---|---|
| u8, u16, u32, u64 | unsigned integer of 8, 16, 32 or 64 bits |
| i32, i64 | signed integer of 32 or 64 bits, two's complement |
| bool | one byte, 0 for false or 1 for true |
| time | point in time as i64, nanoseconds since 1970; the smallest i64 means that no time is set |
| span | duration as i64, in nanoseconds |
| text | length of the text in bytes as u32, then the bytes of the text |
| list | number of entries in the list as u32, then the entries |

In a message, a name (bucket, key, version, ETag, access key …) has at most %d bytes, and any other text at most %d
bytes. Inside a reply, the content of an object has at most %d bytes. A list in a message has at most %d entries if they
are objects, handles or keys, %d if they are block checksums, and %d if they are ranges. A list in a message has at most
%d transfer reports, %d entries of user metadata, %d devices or %d notes. If a client's message exceeds a size limit,
ends early, or has bytes behind its end, the server answers with Error BadMessage and ends the connection.

The server answers the requests of one connection in order; a client may send several requests without waiting for the
replies. When a connection ends, the server closes the connection's open objects and removes its drafts. If a client
sends no request for the idle time in the Greeting, the server ends the connection; a Ping counts as a request.

## Login

`+"```text"+`
client  Hello      versions that it speaks
server  Challenge  the version that is spoken, the store, a nonce
client  Proof      access key, a nonce of its own, the server's end of the connection, MAC
server  Greeting   the server's MAC, settings, bounds
`+"```"+`

The MAC in a Proof or a Greeting is an HMAC-SHA256; its key is the secret that belongs to the access key. The MAC covers
these fields, in this order:

`+"```text"+`
text      "nebulaio door"
text      "client" in a Proof, "server" in a Greeting
u16       version
text      store
text      access key
32 bytes  the server's nonce
32 bytes  the client's nonce
u8        binding
u64       end
`+"```"+`

The secret of an access key is never sent, and a Proof is valid for one Challenge only. A client ends the connection if
the MAC in the server's Greeting is wrong.

The binding in a Proof protects against a relay, which is a process that listens in the server's place and passes every
packet on. After the Challenge, the client asks its kernel which socket or process is at the server's end of the
connection, and names that end in the Proof. If a client is connected to a relay, the client's kernel names the relay's
end. The server compares the end in the Proof with its own end of the connection, and refuses the login if they differ.

| binding | end | how a client finds the server's end of the connection |
|---|---|---|
| 1 socket | inode number of the socket that the server accepted, as fstat returns it | the client asks NETLINK_SOCK_DIAG for the peer of its own socket, by inode and cookie (unix_diag) |
| 2 process | inode number of the server's process in pidfs | the client reads the socket option SO_PEERPIDFD; client and server need Linux 6.9 |

The inode number that names the server's end is the same in every PID, user, network and mount namespace. A client names
the server's end by its socket (binding 1) if unix_diag works, else by the server's process (binding 2). If neither
unix_diag nor SO_PEERPIDFD works, the client does not log in. Inode numbers of sockets have 32 bits, and the kernel uses
a number again after its counter wraps around. So that no inode number is used again during a login, a client waits at
most %s for the Challenge, and the server limits the time of a login. A client also checks with SO_PEERCRED which user
runs the process that listens on the door's socket. A client refuses a listening process unless its user is root, the
client's own user or the owner of the socket's file.

Version 1 of the protocol had no binding. Version 2 did not tell how objects of other S3 servers were served. Drafts of
version 3 could not begin as a copy of an object. The three are not supported any more. If the client or the server
supports only an old version, the server answers Hello with Error Version.

## Messages

The messages of the protocol follow, each with its fields and the bytes of an example.

`, Version, MaxMessage, MaxDescriptors, MaxName, MaxText, MaxInline, MaxItems, MaxSums, MaxRanges, MaxReports,
	MaxMetadata, MaxDevices, MaxNotes, ChallengeTime)
