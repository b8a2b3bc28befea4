// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Manager makes a cloud from flags, so that a whole daemon can run on it. All
// flags have an environment variable: -fake-dir is FAKE_DIR and so on.
type Manager struct {
	flags  *flag.FlagSet
	values map[string]*string
}

// NewManager makes a manager. It registers nothing.
func NewManager() *Manager { return &Manager{values: map[string]*string{}} }

var _ provider.CloudProvider = (*Manager)(nil)

// settings are the flags, each with what it does to the options.
var settings = []struct {
	name, usage string
	apply       func(o *Options, value string) error
}{
	{"fake-dir", "folder of the cloud, shared by all processes that name it; in memory when empty", func(o *Options, v string) error {
		o.Dir = v
		return nil
	}},
	{"fake-latency", "how long every call takes at least, such as 100ms", func(o *Options, v string) (err error) {
		o.Latency, err = time.ParseDuration(v)
		return err
	}},
	{"fake-capacity", "how many instances fit; 0 means no limit", func(o *Options, v string) (err error) {
		o.Capacity, err = strconv.Atoi(v)
		return err
	}},
	{"fake-lists", "how many lists do not show a new instance yet", func(o *Options, v string) (err error) {
		o.Eventual.Lists, err = strconv.Atoi(v)
		return err
	}},
	{"fake-faults", "script of faults, such as create:lost-reply,delete:throttled:skip=1:times=3", func(o *Options, v string) error {
		faults, err := ParseFaults(v)
		o.Faults = append(o.Faults, faults...)
		return err
	}},
}

// ParseCmd registers the flags.
func (m *Manager) ParseCmd(flags *flag.FlagSet) {
	m.flags = flags
	for _, s := range settings {
		m.values[s.name] = flags.String(s.name, "", s.usage)
	}
}

// LoadEnv fills from the environment what no flag has set.
func (m *Manager) LoadEnv() {
	set := map[string]bool{}
	if m.flags != nil {
		m.flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	}
	for _, s := range settings {
		if value, ok := os.LookupEnv(envName(s.name)); ok && !set[s.name] {
			m.values[s.name] = &value
		}
	}
}

func envName(flagName string) string {
	return strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// NewProvider makes the cloud, or connects to the one in the folder.
func (m *Manager) NewProvider() (provider.Provider, error) {
	var options Options
	for _, s := range settings {
		value := m.values[s.name]
		if value == nil || *value == "" {
			continue
		}
		if err := s.apply(&options, *value); err != nil {
			return nil, fmt.Errorf("%w: -%s (%s) %q: %w", provider.ErrInvalidArgument, s.name, envName(s.name), *value, err)
		}
	}
	cloud, err := New(options)
	if err != nil {
		return nil, err // not the nil *Cloud, which is not a nil Provider
	}
	return cloud, nil
}

// ParseFaults reads a script: faults divided by commas, each op:fault with
// optional :skip=n and :times=n. Faults are throttled, unauthenticated, quota,
// no-capacity, in-use, lost-reply, partial, unknown and slow=duration.
func ParseFaults(text string) ([]Fault, error) {
	var faults []Fault
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		fault, err := parseFault(line)
		if err != nil {
			return nil, fmt.Errorf("fault %q: %w", line, err)
		}
		faults = append(faults, fault)
	}
	return faults, nil
}

func parseFault(line string) (Fault, error) {
	parts := strings.Split(line, ":")
	if len(parts) < 2 {
		return Fault{}, fmt.Errorf("not op:fault")
	}
	fault, err := namedFault(Op(parts[0]), parts[1])
	for _, part := range parts[2:] {
		if err == nil {
			err = fault.parseCount(part)
		}
	}
	return fault, err
}

func namedFault(op Op, name string) (Fault, error) {
	if !knownOps[op] {
		return Fault{}, fmt.Errorf("unknown call %q", op)
	}
	name, value, _ := strings.Cut(name, "=")
	switch name {
	case "throttled":
		return Throttled(op), nil
	case "unauthenticated":
		return Unauthenticated(op), nil
	case "lost-reply":
		return LostReply(op), nil
	case "unknown":
		return Fail(op, provider.ErrUnknown), nil
	case "slow":
		delay, err := time.ParseDuration(value)
		return Slow(op, delay), err
	}
	switch string(op) + ":" + name {
	case "create:quota":
		return Quota(), nil
	case "create:no-capacity":
		return NoCapacity(), nil
	case "create:partial":
		return PartialCreate(), nil
	case "delete:partial":
		return PartialDelete(), nil
	case "create-disk:quota", "create-snapshot:quota":
		return Fail(op, fmt.Errorf("%w: the account may have no more", provider.ErrQuota)), nil
	case "create-disk:no-capacity":
		return Fail(op, fmt.Errorf("%w: the zone has no room", provider.ErrCapacity)), nil
	case "attach-disk:in-use", "delete-disk:in-use":
		return Fail(op, fmt.Errorf("%w: another instance has the disk", provider.ErrInUse)), nil
	}
	return Fault{}, fmt.Errorf("call %s has no fault %q", op, name)
}

var knownOps = map[Op]bool{
	OpCreate: true, OpDelete: true, OpList: true, OpGet: true, OpConsole: true,
	OpPowerOff: true, OpPowerOn: true, OpTypes: true, OpVerify: true,
	OpEnsureBalancer: true, OpGetBalancer: true, OpListBalancers: true, OpDeleteBalancer: true,
	OpCreateDisk: true, OpGetDisk: true, OpListDisks: true, OpDeleteDisk: true, OpAttachDisk: true, OpDetachDisk: true, OpResizeDisk: true,
	OpCreateSnapshot: true, OpGetSnapshot: true, OpListSnapshots: true, OpDeleteSnapshot: true,
}

func (f *Fault) parseCount(part string) (err error) {
	switch name, value, _ := strings.Cut(part, "="); name {
	case "skip":
		f.Skip, err = strconv.Atoi(value)
	case "times":
		f.Times, err = strconv.Atoi(value)
	default:
		err = fmt.Errorf("%q is neither skip=n nor times=n", part)
	}
	return err
}
