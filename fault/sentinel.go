// SPDX-License-Identifier: Apache-2.0

package fault

// Sentinel is a constant error that stands for one kind. For example, errors.Is(err, ErrNotFound) is true if err or
// one of its causes is of kind NotFound.
type Sentinel Kind

// Sentinels for errors.Is, one for each kind.
const (
	ErrOther       = Sentinel(Other)
	ErrInvalid     = Sentinel(Invalid)
	ErrNotFound    = Sentinel(NotFound)
	ErrPermission  = Sentinel(Permission)
	ErrCorrupt     = Sentinel(Corrupt)
	ErrIO          = Sentinel(IO)
	ErrDevice      = Sentinel(Device)
	ErrNoMemory    = Sentinel(NoMemory)
	ErrUnsupported = Sentinel(Unsupported)
	ErrCancelled   = Sentinel(Cancelled)
	ErrClosed      = Sentinel(Closed)
)

// Kind returns the kind that the sentinel stands for.
func (s Sentinel) Kind() Kind { return Kind(s) }

// Error returns the name of the kind that the sentinel stands for.
func (s Sentinel) Error() string { return Kind(s).String() }
