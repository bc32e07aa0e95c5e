// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// lifetime counts the users of memory that is freed once. The end waits for all users, and after it has begun no new
// user is admitted. The zero value is alive.
type lifetime struct {
	mu    sync.Mutex
	users sync.WaitGroup
	ended bool
	freed sync.Once
}

// enter adds a user; the user calls leave when it is done. After the end has begun, enter fails with kind Closed.
func (l *lifetime) enter(op, name, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return errs.New(errs.Closed, op, name, why)
	}
	l.users.Add(1)
	return nil
}

func (l *lifetime) leave() { l.users.Done() }

// alive reports whether the end has not begun yet.
func (l *lifetime) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ended
}

// end refuses new users, waits for the present users and calls free. Only the first call frees; later calls wait for
// the first and return nil.
func (l *lifetime) end(free func() error) (err error) {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.freed.Do(func() {
		l.users.Wait()
		err = free()
	})
	return err
}
