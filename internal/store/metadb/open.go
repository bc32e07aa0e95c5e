// SPDX-License-Identifier: Apache-2.0

package metadb

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// FatalError is what Pebble held for fatal, with the error that it came from: that tells a full disk from damage.
func FatalError(format string, args []any) error {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if cause, ok := a.(error); ok && !errors.Is(err, cause) {
			return because{err, cause}
		}
	}
	return err
}

// because is an error that is said in other words than its cause.
type because struct{ said, cause error }

func (b because) Error() string { return b.said.Error() }

func (b because) Unwrap() error { return b.cause }

// Open opens metadata that nothing guards, for a tool. It turns whatever Pebble does on a failure into an error.
func Open(dir string, o *pebble.Options) (*pebble.DB, error) {
	done := OpenAside(dir, o)
	r := <-done
	return r.DB, r.Err
}

// Opened is what came of an attempt to open metadata.
type Opened struct {
	DB  *pebble.DB
	Err error
}

// OpenAside opens metadata on a goroutine of its own. A panic with an error becomes that error.
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
