// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// How events are repeated while containerd is down. One that is older than
// eventPatience is dropped: a containerd that has been gone that long asks for
// the state of all tasks when it comes back.
const (
	eventRetry    = time.Second
	eventPatience = 5 * time.Minute
	eventTimeout  = 5 * time.Second
)

// Publisher sends events to containerd, in order.
type Publisher struct {
	address   string
	namespace string
	log       *slog.Logger

	queue   chan *types.Envelope
	once    sync.Once
	closing chan struct{}
	done    chan struct{}
	conn    *ttrpc.Client // of run only
}

// NewPublisher sends to containerd's ttrpc socket until Close.
func NewPublisher(address, namespace string, log *slog.Logger) *Publisher {
	p := &Publisher{
		address: address, namespace: namespace, log: log,
		queue: make(chan *types.Envelope, 4096), closing: make(chan struct{}), done: make(chan struct{}),
	}
	go p.run()
	return p
}

// Publish queues an event of package containerd.events and does not wait.
func (p *Publisher) Publish(event proto.Message) {
	envelope, err := p.envelope(event)
	if err != nil {
		p.log.Error("an event was not published", "error", err)
		return
	}
	select {
	case p.queue <- envelope:
	default:
		p.log.Error("an event was dropped, since containerd does not accept events", "topic", envelope.Topic)
	}
}

// envelope names the type without a prefix, as containerd does.
func (p *Publisher) envelope(event proto.Message) (*types.Envelope, error) {
	name := topic(event)
	if name == "" {
		return nil, fmt.Errorf("no topic for %T", event)
	}
	value, err := proto.Marshal(event)
	if err != nil {
		return nil, err
	}
	return &types.Envelope{
		Timestamp: timestamppb.Now(), Namespace: p.namespace, Topic: name,
		Event: &anypb.Any{TypeUrl: string(proto.MessageName(event)), Value: value},
	}, nil
}

// topic returns containerd's topic of an event.
func topic(event proto.Message) string {
	switch event.(type) {
	case *events.TaskCreate:
		return "/tasks/create"
	case *events.TaskStart:
		return "/tasks/start"
	case *events.TaskOOM:
		return "/tasks/oom"
	case *events.TaskExit:
		return "/tasks/exit"
	case *events.TaskDelete:
		return "/tasks/delete"
	case *events.TaskExecAdded:
		return "/tasks/exec-added"
	case *events.TaskExecStarted:
		return "/tasks/exec-started"
	case *events.TaskPaused:
		return "/tasks/paused"
	case *events.TaskResumed:
		return "/tasks/resumed"
	}
	return ""
}

func (p *Publisher) run() {
	defer close(p.done)
	for envelope := p.next(); envelope != nil; envelope = p.next() {
		if err := p.deliver(envelope); err != nil {
			p.log.Error("an event was dropped", "topic", envelope.Topic, "error", err)
		}
	}
	if p.conn != nil {
		p.conn.Close()
	}
}

// next waits for an event; nil is the end: closing, and none left.
func (p *Publisher) next() *types.Envelope {
	select {
	case envelope := <-p.queue:
		return envelope
	case <-p.closing:
	}
	select {
	case envelope := <-p.queue:
		return envelope
	default:
		return nil
	}
}

// deliver repeats until containerd has the event, it is too old, or the
// publisher closes.
func (p *Publisher) deliver(envelope *types.Envelope) error {
	deadline := envelope.Timestamp.AsTime().Add(eventPatience)
	for {
		err := p.send(envelope)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(eventRetry):
		case <-p.closing:
			return err
		}
	}
}

func (p *Publisher) send(envelope *types.Envelope) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if p.conn == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", p.address)
		if err != nil {
			return err
		}
		p.conn = ttrpc.NewClient(conn)
	}
	_, err := eventsapi.NewTTRPCEventsClient(p.conn).Forward(ctx, &eventsapi.ForwardRequest{Envelope: envelope})
	if err != nil {
		p.conn.Close()
		p.conn = nil
	}
	return err
}

// Close waits for what is queued, at most until ctx ends. What is published
// after it is lost.
func (p *Publisher) Close(ctx context.Context) {
	p.once.Do(func() { close(p.closing) })
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}
