// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"time"
)

// Record is one request. The JSON of a Record is one line of the log.
type Record struct {
	Version   int       `json:"version"` // of the format; always 1
	Time      time.Time `json:"time"`    // when the request's header had arrived
	Source    string    `json:"source"`  // which front end answered: s3, door or admin
	RequestID string    `json:"request_id,omitempty"`
	HostID    string    `json:"host_id,omitempty"`
	Operation string    `json:"operation"`
	Method    string    `json:"method,omitempty"`
	Bucket    string    `json:"bucket,omitempty"`
	Key       string    `json:"key,omitempty"`
	VersionID string    `json:"version_id,omitempty"`
	Status    int       `json:"status,omitempty"` // HTTP status
	Code      string    `json:"code,omitempty"`   // error code of a refused request
	BytesIn   int64     `json:"bytes_in"`
	// BytesOut is the size of the reply's body. The line is written before the body is sent.
	BytesOut int64   `json:"bytes_out"`
	Millis   float64 `json:"ms"` // time until the reply was ready to be sent
	Account  string  `json:"account,omitempty"`
	Remote   string  `json:"remote,omitempty"`
	Agent    string  `json:"agent,omitempty"`
}

// RecordVersion is the value of Record.Version.
const RecordVersion = 1

// Encode returns the line of a record, without its line break.
func (r *Record) Encode() ([]byte, error) {
	r.Version = RecordVersion
	return json.Marshal(r)
}
