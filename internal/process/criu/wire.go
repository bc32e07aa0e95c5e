// SPDX-License-Identifier: Apache-2.0

package criu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostRequest is the longest message of criu that is believed: a message has the name of an image file.
const mostRequest = 4096

// nameField is the tag of the only field of a request, the file's name: field 1, with a length.
const nameField = 0x0a

// readRequest reads the name of the image file that criu wants to write or read. At the end of the connection, the
// error is io.EOF.
func readRequest(r io.Reader) (string, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return "", err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > mostRequest {
		return "", fmt.Errorf("a message of %d bytes, expected at most %d", n, mostRequest)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", fmt.Errorf("a message that ends too soon: %w", noEOF(err))
	}
	return parseRequest(b)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseRequest decodes the protobuf message img_streamer_request_entry.
func parseRequest(b []byte) (string, error) {
	if len(b) < 2 || b[0] != nameField {
		return "", errors.New("a message without a file name")
	}
	n, used := binary.Uvarint(b[1:])
	if used <= 0 || n != uint64(len(b)-1-used) {
		return "", errors.New("a file name with a wrong length")
	}
	return string(b[1+used:]), nil
}

// writeReply tells criu whether there is an image file: the protobuf message img_streamer_reply_entry.
func writeReply(w io.Writer, exists bool) error {
	b := []byte{2, 0, 0, 0, 0x08, 0}
	if exists {
		b[5] = 1
	}
	_, err := w.Write(b)
	return err
}

// pipeSize is the size of the pipes of image files. criu does not work with pipes of more than 4 MiB.
const pipeSize = 1 << 20

// receivePipe receives criu's pipe of an image file, which comes with one byte of data.
func receivePipe(c *net.UnixConn) (*os.File, error) {
	data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4*4))
	n, used, flags, _, err := c.ReadMsgUnix(data, control)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:used])
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // no descriptors
		}
		fds = append(fds, got...)
	}
	if n != 1 || len(fds) != 1 || flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("%d descriptors and %d bytes, expected a pipe and 1 byte", len(fds), n)
	}
	unix.CloseOnExec(fds[0])
	// The size only matters for speed.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	// Only a non-blocking pipe can be closed while it is read or written.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pipe of criu"), nil
}

// broken names an error of the conversation with criu.
func broken(err error) error {
	if e := (*errs.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &errs.Error{Kind: errs.IO, Op: "stream images of", Name: "criu", Err: err}
}
