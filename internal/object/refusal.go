// SPDX-License-Identifier: Apache-2.0

package object

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Refusal is an S3 error for which package object has no Err variable: the reply of another S3 server, or the news that
// the server cannot be reached. The S3 front end answers its client with the status, the code and the message.
type Refusal struct {
	Status  int    // HTTP status, 400 to 599
	Code    string // S3 error code, such as "InvalidObjectState"
	Message string
	Kind    errs.Kind
}

// Error returns the code, the message and the status in one line.
func (r *Refusal) Error() string {
	if r.Message == "" {
		return fmt.Sprintf("%s (HTTP %d)", r.Code, r.Status)
	}
	return fmt.Sprintf("%s: %s (HTTP %d)", r.Code, r.Message, r.Status)
}

// As lets errs.KindOf find the kind of a Refusal that no errs.Error wraps.
func (r *Refusal) As(target any) bool {
	e, ok := target.(**errs.Error)
	if !ok {
		return false
	}
	*e = errs.New(r.Kind, "", "", r.Error())
	return true
}
