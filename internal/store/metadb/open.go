// SPDX-License-Identifier: Apache-2.0

package metadb

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// FatalError returns an error for the arguments of Pebble's Fatalf. FatalError wraps the error among the arguments,
// so that callers can distinguish a full disk from damage.
func FatalError(format string, args []any) error {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if cause, ok := a.(error); ok && !errors.Is(err, cause) {
			return because{err, cause}
		}
	}
	return err
}

// because is an error with a text of its own and a cause.
type because struct{ said, cause error }

func (b because) Error() string { return b.said.Error() }

func (b because) Unwrap() error { return b.cause }

// Open opens metadata for a tool, without the Fence that keeps a failing disk from ending the process. If Pebble panics
// with an error or reports a fatal error, Open returns that error.
func Open(dir string, o *pebble.Options) (*pebble.DB, error) {
	done := OpenAside(dir, o)
	r := <-done
	return r.DB, r.Err
}

// Opened is the result of opening metadata.
type Opened struct {
	DB  *pebble.DB
	Err error
}

// OpenAside opens metadata on a separate goroutine and sends the result to the channel. If Pebble panics with an error,
// OpenAside sends that error as Opened.Err.
func OpenAside(dir string, o *pebble.Options) <-chan Opened {
	done := make(chan Opened, 1)
	go func() {
		var r Opened
		defer func() {
			if p := recover(); p != nil {
				err, ok := p.(error)
				if !ok {
					panic(p)
				}
				r = Opened{nil, err}
			}
			done <- r
		}()
		r.DB, r.Err = pebble.Open(dir, o)
	}()
	return done
}
