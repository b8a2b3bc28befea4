// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
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
	name := proto.MessageName(event)
	value, err := proto.Marshal(event)
	if topics[name] == "" {
		err = fmt.Errorf("no topic for %T", event)
	}
	if err != nil {
		p.log.Error("an event was not published", "error", err)
		return
	}
	envelope := &types.Envelope{
		Timestamp: timestamppb.Now(), Namespace: p.namespace, Topic: topics[name],
		Event: &anypb.Any{TypeUrl: string(name), Value: value}, // without a prefix, as containerd does
	}
	select {
	case p.queue <- envelope:
	default:
		p.log.Error("an event was dropped, since containerd does not accept events", "topic", envelope.Topic)
	}
}

// topics are containerd's topics of events.
var topics = map[protoreflect.FullName]string{
	"containerd.events.TaskCreate":      "/tasks/create",
	"containerd.events.TaskStart":       "/tasks/start",
	"containerd.events.TaskOOM":         "/tasks/oom",
	"containerd.events.TaskExit":        "/tasks/exit",
	"containerd.events.TaskDelete":      "/tasks/delete",
	"containerd.events.TaskExecAdded":   "/tasks/exec-added",
	"containerd.events.TaskExecStarted": "/tasks/exec-started",
	"containerd.events.TaskPaused":      "/tasks/paused",
	"containerd.events.TaskResumed":     "/tasks/resumed",
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
