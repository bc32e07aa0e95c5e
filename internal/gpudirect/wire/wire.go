// SPDX-License-Identifier: Apache-2.0

// Package wire encodes and decodes the messages of the GPUDirect door. A client and a server on one host exchange the
// messages of the door over a Unix socket. Package wire does no I/O.
//
// The socket is of type SOCK_SEQPACKET, and one packet is one message. The file descriptors of a message are sent
// with its packet (SCM_RIGHTS). A packet is a header of 8 bytes and a body. All numbers in a packet are
// little-endian. The 8 bytes of a packet's header hold the message's type, flags, number of descriptors and request
// number:
//
//	byte 0     type of the message
//	byte 1     flags: 1 = further replies to the same request follow
//	bytes 2-3  number of descriptors that come with it
//	bytes 4-7  number of the request, chosen by the client; replies repeat it
//
// A client may send requests without waiting for replies. The server answers the requests of one connection in order.
// A connection begins with a handshake of the messages Hello, Challenge, Proof and Greeting:
//
//	client  Hello      versions that it speaks
//	server  Challenge  the version that will be spoken, the store, a nonce
//	client  Proof      access key, a nonce of its own, the server's end as the client sees it, MAC of all by the secret
//	server  Greeting   the server's own MAC, settings and bounds
//
// After the handshake the requests are Open, Move, Sums, Close, Create, AddSums, Commit, Abort, List and Ping. The
// server answers each request with the reply that belongs to its type, or with Error. If the server cannot decode a
// message, it sends an Error and closes the connection. Clients number the requests of a connection from 1 on. An
// Error with request number 0 means that the server closes the connection. The server closes a connection if the
// client was silent for too long, or if the server stops. When a connection ends, the server closes all handles and
// aborts all drafts of the connection.
//
// Decode checks every count and length against the constants of this package before it allocates memory.
package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Version is the protocol version that this package speaks, and MinVersion is the oldest version that it accepts.
const (
	Version    = 4
	MinVersion = 4
)

// HeaderSize to MaxNotes are the sizes and bounds of messages.
const (
	HeaderSize = 8
	// MaxMessage is the largest size of a packet in bytes, including the header.
	MaxMessage = 128 << 10
	// MaxDescriptors is the largest number of descriptors in one packet. The Linux kernel allows 253 descriptors in
	// one packet.
	MaxDescriptors = 240
	// MaxItems is the largest number of objects in one Open, of handles in one Close and of entries in one Listed.
	MaxItems = 1024
	// MaxSums is the largest number of block checksums in one message, enough for 8 GiB of content.
	MaxSums = 8192
	// MaxRanges is the largest number of ranges in one Move.
	MaxRanges = 4096
	// MaxReports is the largest number of transfer reports in one Close or Commit.
	MaxReports = 256
	// MaxName is the largest length in bytes of a bucket's name, a key, an ETag or a version. MaxText is the largest
	// length in bytes of an error message or another text.
	MaxName = 1024
	MaxText = 4096
	// MaxInline is the largest content in bytes that is sent inside a reply.
	MaxInline = 64 << 10
	// MaxMetadata is the largest number of user metadata entries of one object. MaxDevices is the largest number of
	// devices in a Greeting.
	MaxMetadata = 256
	MaxDevices  = 64
	// NonceSize and MACSize are the lengths of a nonce and of a MAC, in bytes.
	NonceSize = 32
	MACSize   = 32
	// MaxNotes is the largest number of notes in a Greeting.
	MaxNotes = 16
)

// Type is the number of a message's type, the first byte of its packet.
type Type uint8

// The Type constants are the types of messages. If a request has a reply type of its own, the reply's number follows
// that of the request.
const (
	TypeHello Type = iota + 1
	TypeChallenge
	TypeProof
	TypeGreeting
	TypeOpen
	TypeOpened
	TypeMove
	TypeSums
	TypeSumsReply
	TypeClose
	TypeCreate
	TypeCreated
	TypeAddSums
	TypeCommit
	TypeCommitted
	TypeAbort
	TypeList
	TypeListed
	TypePing
	TypeAck
	TypeError
)

// FlagMore marks a reply that is followed by more replies to the same request.
const FlagMore = 1

// Header is the first 8 bytes of every packet.
type Header struct {
	Type        Type
	Flags       uint8
	Descriptors uint16
	Request     uint32
}

// Message is the body of a packet.
type Message interface {
	// Type returns the message's type.
	Type() Type
	// code passes every field of the body to the coder, which writes or reads the field.
	code(c *coder)
}

// Append appends a whole packet, header and body, to b. Append writes the type of m into the header and ignores
// h.Type. Append does not change m, so that several goroutines may append one message. If the message exceeds a bound
// of this package, Append fails with kind Invalid.
func Append(b []byte, h Header, m Message) ([]byte, error) {
	start := len(b)
	h.Type = m.Type()
	b = append(b, byte(h.Type), h.Flags)
	b = binary.LittleEndian.AppendUint16(b, h.Descriptors)
	b = binary.LittleEndian.AppendUint32(b, h.Request)
	c := &coder{b: b, what: h.Type, writes: true}
	m.code(c)
	if n := len(c.b) - start; n > MaxMessage {
		c.fail(fmt.Sprintf("has %d bytes, expected at most %d", n, MaxMessage))
	}
	if c.err != nil {
		return b[:start], c.err
	}
	return c.b, nil
}

// Decode reads the packet in b and returns its header and message. The message that Decode returns shares no memory
// with b. If b is not a valid packet, Decode fails with kind Invalid. If b is long enough to hold a header, Decode
// returns the header even with an error.
func Decode(b []byte) (Header, Message, error) {
	if len(b) < HeaderSize {
		return Header{}, nil, invalid("a packet", fmt.Sprintf("has %d bytes, expected at least %d", len(b), HeaderSize))
	}
	h := Header{Type: Type(b[0]), Flags: b[1], Descriptors: binary.LittleEndian.Uint16(b[2:]),
		Request: binary.LittleEndian.Uint32(b[4:])}
	if len(b) > MaxMessage {
		return h, nil, invalid(fmt.Sprint(h.Type), fmt.Sprintf("has %d bytes, expected at most %d", len(b), MaxMessage))
	}
	m := blank(h.Type)
	if m == nil {
		return h, nil, invalid(fmt.Sprint(h.Type), fmt.Sprintf("is no type of message of version %d", Version))
	}
	c := &coder{b: b[HeaderSize:], what: h.Type}
	m.code(c)
	if c.err == nil && len(c.b) > 0 {
		c.fail(fmt.Sprintf("has %d bytes behind its end", len(c.b)))
	}
	if c.err != nil {
		return h, nil, c.err
	}
	return h, m, nil
}

func invalid(name, msg string) error { return errs.New(errs.Invalid, "read door message", name, msg) }

// blank returns an empty message of type t, or nil if t is unknown.
func blank(t Type) Message {
	switch t {
	case TypeHello:
		return &Hello{}
	case TypeChallenge:
		return &Challenge{}
	case TypeProof:
		return &Proof{}
	case TypeGreeting:
		return &Greeting{}
	case TypeOpen:
		return &Open{}
	case TypeOpened:
		return &Opened{}
	case TypeMove:
		return &Move{}
	case TypeSums:
		return &Sums{}
	case TypeSumsReply:
		return &SumsReply{}
	case TypeClose:
		return &Close{}
	case TypeCreate:
		return &Create{}
	case TypeCreated:
		return &Created{}
	case TypeAddSums:
		return &AddSums{}
	case TypeCommit:
		return &Commit{}
	case TypeCommitted:
		return &Committed{}
	case TypeAbort:
		return &Abort{}
	case TypeList:
		return &List{}
	case TypeListed:
		return &Listed{}
	case TypePing:
		return &Ping{}
	case TypeAck:
		return &Ack{}
	case TypeError:
		return &Error{}
	}
	return nil
}

// String returns the name of a message type, such as "Open".
func (t Type) String() string {
	names := [...]string{"", "Hello", "Challenge", "Proof", "Greeting", "Open", "Opened", "Move", "Sums", "SumsReply",
		"Close",
		"Create", "Created", "AddSums", "Commit", "Committed", "Abort", "List", "Listed", "Ping", "Ack", "Error"}
	if t > 0 && int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}
