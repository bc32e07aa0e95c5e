// SPDX-License-Identifier: Apache-2.0

// Package wire encodes and decodes the messages of the GPUDirect door, which a client and a server on one host exchange
// over a Unix socket. It does no I/O.
//
// The socket is of type SOCK_SEQPACKET: one packet is one message, and the
// descriptors that belong to a message travel with it (SCM_RIGHTS). A packet is a
// header of 8 bytes and a body, everything little-endian:
//
//	byte 0     type of the message
//	byte 1     flags: 1 = further replies to the same request follow
//	bytes 2-3  number of descriptors that come with it
//	bytes 4-7  number of the request, chosen by the client; replies repeat it
//
// A client may send requests without waiting for replies; requests of one
// connection are answered in order. The exchange begins with
//
//	client  Hello      versions that it speaks
//	server  Challenge  the version that will be spoken, the store, a nonce
//	client  Proof      access key, a nonce of its own, the server's end as the client sees it, MAC of all by the secret
//	server  Greeting   the server's own MAC, settings and bounds
//
// After that the requests are Open, Move, Sums, Close, Create, AddSums, Commit, Abort, List and Ping. The server
// answers each with its reply or with Error. After a message that it cannot decode, the server sends an Error and ends
// the connection. Clients number their requests from 1 on. An Error with number 0 is about the connection, which the
// server then ends: the client was silent for too long, or the server stops. When the connection ends, every handle is
// closed and every draft is aborted.
//
// Every count and length is bounded by the constants of this package, before
// anything is allocated for it.
package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// The version of the protocol that this package speaks, and the oldest that it understands.
const (
	Version    = 2
	MinVersion = 2
)

// Bounds of messages.
const (
	HeaderSize = 8
	// MaxMessage bounds a packet with its header.
	MaxMessage = 128 << 10
	// MaxDescriptors is the largest number of descriptors in one packet. The kernel allows 253.
	MaxDescriptors = 240
	// MaxItems bounds the objects of one Open, the handles of one Close and the entries of one Listed.
	MaxItems = 1024
	// MaxSums bounds the checksums in one message: those of 8 GiB of content.
	MaxSums = 8192
	// MaxRanges bounds the ranges of one Move.
	MaxRanges = 4096
	// MaxReports bounds the reports of one Close.
	MaxReports = 256
	// MaxName bounds a bucket's name, a key, an ETag, a version; MaxText messages and other texts.
	MaxName = 1024
	MaxText = 4096
	// MaxInline bounds content that is sent inside a reply.
	MaxInline = 64 << 10
	// MaxMetadata bounds the user's names and values of one object; MaxDevices the devices of a Greeting.
	MaxMetadata = 256
	MaxDevices  = 64
	// NonceSize and MACSize are the lengths of nonces and of MACs.
	NonceSize = 32
	MACSize   = 32
	// MaxNotes bounds the notes of a Greeting.
	MaxNotes = 16
)

// Type is the kind of a message.
type Type uint8

// The types. Replies stand behind their requests.
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

// Header begins every packet.
type Header struct {
	Type        Type
	Flags       uint8
	Descriptors uint16
	Request     uint32
}

// Message is the body of a packet.
type Message interface {
	// Type is the message's type.
	Type() Type
	// code writes or reads the body, field by field, as the coder says.
	code(c *coder)
}

// Append appends a whole packet to b. It sets h.Type by the message. It fails with kind Invalid if the message exceeds
// a bound.
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

// Decode reads a packet. The message shares no memory with b. An error is of kind Invalid and names what is wrong; the
// header is returned with it if that could be read.
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
		return h, nil, invalid(fmt.Sprint(h.Type), "is no type of message of version 2")
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

// blank is an empty message of a type; nil for an unknown one.
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

// String names a type.
func (t Type) String() string {
	names := [...]string{"", "Hello", "Challenge", "Proof", "Greeting", "Open", "Opened", "Move", "Sums", "SumsReply",
		"Close",
		"Create", "Created", "AddSums", "Commit", "Committed", "Abort", "List", "Listed", "Ping", "Ack", "Error"}
	if t > 0 && int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}
