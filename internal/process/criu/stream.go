// SPDX-License-Identifier: Apache-2.0

package criu

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// The sockets at which criu looks for its image streamer, in the folder of the images.
const (
	captureSocket = "streamer-capture.sock"
	serveSocket   = "streamer-serve.sock"
)

// Output receives the image files of a dump.
type Output interface {
	// Receive takes the content of an image file from r until its end. Receive is called by one goroutine for each
	// file, and files come at the same time.
	Receive(name string, r io.Reader) error
}

// Input has the image files of a restore.
type Input interface {
	// Has reports whether there is an image file of this name.
	Has(name string) bool
	// Send writes the content of an image file to w. Send is called by one goroutine for each file.
	Send(ctx context.Context, name string, w io.Writer) error
}

// streamer speaks criu's image streamer protocol. criu opens one connection, and names on it one file after the other.
// The bytes of a file go through a pipe, which criu sends along.
type streamer struct {
	listener *net.UnixListener
	files    sync.WaitGroup

	mu    sync.Mutex
	open  map[io.Closer]struct{} // connection and pipes
	err   error                  // first error
	ended bool
}

func listen(dir, socket string) (*streamer, error) {
	path := filepath.Join(dir, socket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, errs.Wrap("listen at", path, err)
	}
	return &streamer{listener: l, open: map[io.Closer]struct{}{}}, nil
}

// fail records the first error and ends the conversation: criu fails with a broken pipe then, and puts the process
// back.
func (s *streamer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.closeAll()
}

// closeAll closes everything that is open. The caller holds mu.
func (s *streamer) closeAll() {
	s.ended = true
	for c := range s.open {
		c.Close() // the first error counts
	}
	clear(s.open)
	s.listener.Close()
}

// keep registers a connection or pipe that fail has to close.
func (s *streamer) keep(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		c.Close() // nobody uses it
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *streamer) drop(c io.Closer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.open[c]; !there {
		return os.ErrClosed
	}
	delete(s.open, c)
	return c.Close()
}

// run accepts criu's connection and calls each for every file that criu names, until criu closes the connection. Then
// run waits for the transfers of all files.
func (s *streamer) run(each func(c *net.UnixConn, name string) error) {
	c, err := s.listener.AcceptUnix()
	if err != nil {
		return // criu has ended without a connection, or the dump was stopped
	}
	if !s.keep(c) {
		return
	}
	for {
		name, err := readRequest(c)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = each(c, name)
		}
		if err != nil {
			s.fail(broken(err))
			break
		}
	}
	s.files.Wait()
	_ = s.drop(c) // criu has closed its side
}

// finish is called after criu has ended. It returns the first error of the conversation.
func (s *streamer) finish(done <-chan struct{}) error {
	s.listener.Close() // a criu that never connected
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.closeAll()
	return err
}

// transfer moves one file in a goroutine of its own.
func (s *streamer) transfer(pipe *os.File, move func() error) {
	if !s.keep(pipe) {
		return
	}
	s.files.Go(func() {
		err := move()
		if e := s.drop(pipe); err == nil {
			err = e
		}
		if err != nil {
			s.fail(broken(err))
		}
	})
}

// capture receives the image files of a dump.
func (s *streamer) capture(out Output) {
	s.run(func(c *net.UnixConn, name string) error {
		pipe, err := receivePipe(c)
		if err != nil {
			return err
		}
		s.transfer(pipe, func() error { return out.Receive(name, pipe) })
		return nil
	})
}

// serve sends the image files of a restore.
func (s *streamer) serve(ctx context.Context, in Input) {
	s.run(func(c *net.UnixConn, name string) error {
		exists := in.Has(name)
		if err := writeReply(c, exists); err != nil || !exists {
			return err
		}
		pipe, err := receivePipe(c)
		if err != nil {
			return err
		}
		s.transfer(pipe, func() error { return in.Send(ctx, name, pipe) })
		return nil
	})
}
