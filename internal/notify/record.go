// SPDX-License-Identifier: Apache-2.0

// Package notify tells other programs of changes of objects: HTTP servers, NATS JetStream and Apache Kafka.
//
// The store's journal is the queue of each target. An event leaves the queue when its target has confirmed it, so every
// event arrives at least once, also if the target or the server was down. The events of one key arrive in order.
package notify

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Message is one event, ready to be sent.
type Message struct {
	// ID is different for each event of a target. An event that is sent again has the same ID.
	ID string
	// Key is the bucket and the key of the object, with a slash between them.
	Key string
	// Body is the JSON of the event.
	Body []byte
}

// envelope is the JSON of a message: the record of S3, with the event's name and key beside it.
type envelope struct {
	EventName string   `json:"EventName"`
	Key       string   `json:"Key"`
	Records   []record `json:"Records"`
}

// record is the record of an event as Amazon S3 documents it, version 2.1.
type record struct {
	EventVersion string            `json:"eventVersion"`
	EventSource  string            `json:"eventSource"`
	AWSRegion    string            `json:"awsRegion"`
	EventTime    string            `json:"eventTime"`
	EventName    string            `json:"eventName"`
	UserIdentity principal         `json:"userIdentity"`
	Parameters   map[string]string `json:"requestParameters"`
	Response     map[string]string `json:"responseElements"`
	S3           about             `json:"s3"`
}

type principal struct {
	PrincipalID string `json:"principalId"`
}

type about struct {
	SchemaVersion   string    `json:"s3SchemaVersion"`
	ConfigurationID string    `json:"configurationId"`
	Bucket          inBucket  `json:"bucket"`
	Object          theObject `json:"object"`
}

type inBucket struct {
	Name          string    `json:"name"`
	OwnerIdentity principal `json:"ownerIdentity"`
	ARN           string    `json:"arn"`
}

type theObject struct {
	Key       string `json:"key"`
	Size      *int64 `json:"size,omitempty"`
	ETag      string `json:"eTag,omitempty"`
	VersionID string `json:"versionId,omitempty"`
	Sequencer string `json:"sequencer"`
}

// newMessage makes the message of a journal entry. The parameter store identifies the store.
func newMessage(store, region string, e *object.JournalEntry) (Message, error) {
	name := NameOf(e)
	r := record{
		EventVersion: "2.1", EventSource: "aws:s3", AWSRegion: region,
		EventTime: e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), EventName: name,
		UserIdentity: principal{e.By.Principal}, Parameters: map[string]string{"sourceIPAddress": e.By.Remote},
		Response: map[string]string{"x-amz-request-id": e.By.RequestID, "x-amz-id-2": e.By.HostID},
		S3: about{
			SchemaVersion: "1.0", ConfigurationID: e.Label,
			Bucket: inBucket{Name: e.Bucket, OwnerIdentity: principal{e.Owner}, ARN: "arn:aws:s3:::" + e.Bucket},
			Object: theObject{Key: url.QueryEscape(e.Key), Sequencer: fmt.Sprintf("%016X", e.Seq)},
		},
	}
	if !e.Kind.Removes() {
		r.S3.Object.Size, r.S3.Object.ETag = &e.Size, e.ETag
	}
	if e.Versioned {
		r.S3.Object.VersionID = e.Version
	}
	key := e.Bucket + "/" + e.Key
	body, err := json.Marshal(envelope{EventName: "s3:" + name, Key: key, Records: []record{r}})
	return Message{ID: fmt.Sprintf("%s-%016x", store, e.Seq), Key: key, Body: body}, err
}

// backoff returns the time after a failed try; it doubles up to most.
func backoff(last, first, most time.Duration) time.Duration {
	if last <= 0 {
		return first
	}
	return min(2*last, most)
}
