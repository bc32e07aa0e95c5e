// SPDX-License-Identifier: Apache-2.0

package rates

import "sync"

// mostUsers is the largest number of accounts whose traffic is counted separately.
const mostUsers = 4096

// Meter counts the traffic of S3 requests by account. A Meter is safe for concurrent use.
type Meter struct {
	mu    sync.Mutex
	total S3
	users map[string]*S3
}

// Count counts one request. The account is empty for an anonymous request.
func (m *Meter) Count(account string, read, written int64, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total.add(read, written, failed)
	if account == "" {
		return
	}
	u := m.users[account]
	if u == nil {
		if len(m.users) >= mostUsers {
			return
		}
		if m.users == nil {
			m.users = map[string]*S3{}
		}
		u = &S3{}
		m.users[account] = u
	}
	u.add(read, written, failed)
}

func (d *S3) add(read, written int64, failed bool) {
	d.Requests++
	d.Read += read
	d.Written += written
	if failed {
		d.Errors++
	}
}

// Counts returns the totals of all requests and of each account.
func (m *Meter) Counts() (total S3, users map[string]S3) {
	m.mu.Lock()
	defer m.mu.Unlock()
	users = make(map[string]S3, len(m.users))
	for name, u := range m.users {
		users[name] = *u
	}
	return m.total, users
}
