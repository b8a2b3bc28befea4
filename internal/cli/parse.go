// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// units of sizes. As everywhere with containers, all are powers of 1024.
var units = map[string]int64{
	"b": 1, "k": 1 << 10, "kb": 1 << 10, "ki": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mi": 1 << 20, "mib": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gi": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "ti": 1 << 40, "tib": 1 << 40,
}

// parseSize reads a size with its unit, such as 512MiB or 1.5g, into bytes.
func parseSize(text string) (int64, error) {
	split := strings.LastIndexAny(text, "0123456789.") + 1
	value, err := strconv.ParseFloat(text[:split], 64)
	unit, known := units[strings.ToLower(strings.TrimSpace(text[split:]))]
	bytes := value * float64(unit)
	if err != nil || !known || value <= 0 || bytes < 1 || bytes > math.MaxInt64/2 {
		return 0, errors.New("want a number above 0 with a unit, such as 512MiB or 2GiB")
	}
	return int64(bytes), nil
}

// leastMilliCPU is the smallest CPU limit, in thousandths: the kernel's least quota is 1 ms of a period of 100 ms.
const leastMilliCPU = 10

// parseCPUs reads a number of CPUs, such as 2 or 0.5, into thousandths.
func parseCPUs(text string) (int64, error) {
	n, err := strconv.ParseFloat(text, 64)
	milli := math.Round(n * 1000)
	if err != nil || milli < leastMilliCPU || milli > 1024*1000 {
		return 0, errors.New("want a number from 0.01 to 1024, such as 2 or 0.5")
	}
	return int64(milli), nil
}

var envName = regexp.MustCompile(`^[^=\s\x00]+$`)

// parseEnv reads KEY=VALUE, or KEY to take the value from lookup; a KEY that is
// not set there is left out.
func parseEnv(text string, lookup func(string) (string, bool)) (kv string, ok bool, err error) {
	key, value, given := strings.Cut(text, "=")
	if !envName.MatchString(key) || strings.ContainsRune(value, 0) {
		return "", false, fmt.Errorf("environment variable %q: want KEY=VALUE or KEY", key)
	}
	if !given {
		if value, ok = lookup(key); !ok {
			return "", false, nil
		}
	}
	return key + "=" + value, true, nil
}

// readEnvFile reads one variable a line; empty lines and those that begin with
// # are left out. Quotes are part of the value.
func readEnvFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimLeft(s.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		kv, ok, err := parseEnv(line, os.LookupEnv)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		if ok {
			all = append(all, kv)
		}
	}
	return all, s.Err()
}

// mergeEnv lets later variables replace earlier ones of the same name.
func mergeEnv(lists ...[]string) []string {
	at := map[string]int{}
	var all []string
	for _, list := range lists {
		for _, kv := range list {
			key, _, _ := strings.Cut(kv, "=")
			if i, ok := at[key]; ok {
				all[i] = kv
			} else {
				at[key] = len(all)
				all = append(all, kv)
			}
		}
	}
	return all
}

// parseMount reads docker's --mount syntax: type=bind,source=/a,target=/b,readonly.
func parseMount(text string) (podclient.Mount, error) {
	m := podclient.Mount{}
	for field := range strings.SplitSeq(text, ",") {
		if err := mountField(&m, field); err != nil {
			return m, err
		}
	}
	return m, checkMount(&m)
}

func mountField(m *podclient.Mount, field string) (err error) {
	key, value, given := strings.Cut(field, "=")
	switch key {
	case "type":
		m.Type = podclient.MountType(value)
	case "source", "src":
		m.Source = value
	case "target", "destination", "dst":
		m.Destination = value
	case "size", "tmpfs-size":
		m.SizeBytes, err = parseSize(value)
	case "readonly", "ro":
		m.ReadOnly = true
		if given {
			m.ReadOnly, err = strconv.ParseBool(value)
		}
	default:
		err = fmt.Errorf("unknown key %q; known are type, source, target, readonly, size", key)
	}
	return err
}

func checkMount(m *podclient.Mount) error {
	if !strings.HasPrefix(m.Destination, "/") || filepath.Clean(m.Destination) == "/" {
		return errors.New("target must be an absolute path other than /")
	}
	if strings.ContainsRune(m.Destination, 0) {
		return errors.New("target contains a zero byte")
	}
	if m.SizeBytes != 0 && m.Type != podclient.MountTmpfs {
		return errors.New("only a tmpfs has a size")
	}
	switch m.Type {
	case podclient.MountBind:
		if m.Source == "" {
			return errors.New("a bind mount needs a source")
		}
		var err error
		if m.Source, err = filepath.Abs(m.Source); err != nil {
			return err
		}
		if _, err := os.Stat(m.Source); err != nil {
			return fmt.Errorf("source: %w", err)
		}
	case podclient.MountTmpfs:
		if m.Source != "" {
			return errors.New("a tmpfs has no source")
		}
	case podclient.MountVolume:
		if m.Source == "" || strings.ContainsAny(m.Source, "/\x00") || m.Source == "." || m.Source == ".." {
			return errors.New("a volume's source is its name, without slashes")
		}
	case "":
		return errors.New("type is missing: bind, tmpfs or volume")
	default:
		return fmt.Errorf("unknown type %q: want bind, tmpfs or volume", m.Type)
	}
	return nil
}

// parseTmpfs reads docker's --tmpfs: TARGET[:size=SIZE,ro].
func parseTmpfs(text string) (podclient.Mount, error) {
	target, options, _ := strings.Cut(text, ":")
	return parseMount(strings.TrimRight("type=tmpfs,target="+target+","+options, ","))
}

// parseVolume reads docker's -v: PATH:TARGET, NAME:TARGET or TARGET, with :ro or :rw.
func parseVolume(text string) (podclient.Mount, error) {
	m := podclient.Mount{Type: podclient.MountVolume}
	parts := strings.Split(text, ":")
	if last := len(parts) - 1; last > 0 && (parts[last] == "ro" || parts[last] == "rw") {
		m.ReadOnly, parts = parts[last] == "ro", parts[:last]
	}
	switch {
	case len(parts) == 1:
		m.Source, m.Destination = strings.ReplaceAll(strings.Trim(parts[0], "/"), "/", "-"), parts[0]
	case len(parts) > 2:
		return m, errors.New("want [SOURCE:]TARGET[:ro|:rw]; other options have no effect in a VM")
	default:
		m.Source, m.Destination = parts[0], parts[1]
	}
	if len(parts) == 2 && strings.ContainsAny(m.Source[:min(len(m.Source), 1)], "/.~") {
		m.Type = podclient.MountBind
	}
	return m, checkMount(&m)
}

func checkName(flag, name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("--%s %q: want at most 63 of a-z, 0-9 and -, with a letter or digit at both ends", flag, name)
	}
	return nil
}

// defaultName returns a name made of the image's last part and the id.
func defaultName(image, id string) string {
	base := filepath.Base(image)
	base, _, _ = strings.Cut(base, "@")
	base, _, _ = strings.Cut(base, ":")
	base = strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(base), "-"), "-")
	if base == "" {
		base = "pod"
	}
	return strings.TrimRight(base[:min(len(base), 40)], "-") + "-" + id[:6]
}

func parseDNS(servers []string) ([]string, error) {
	var lines []string
	for _, s := range servers {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("--dns %q: want an IP address", s)
		}
		lines = append(lines, "nameserver "+addr.String())
	}
	return lines, nil
}

// parseIDs reads UID[:GID]. Names cannot be looked up in a running container.
func parseIDs(text string) (uid, gid uint32, err error) {
	if text == "root" {
		return 0, 0, nil
	}
	u, g, hasGID := strings.Cut(text, ":")
	if !hasGID {
		g = "0"
	}
	user, err1 := strconv.ParseUint(u, 10, 31)
	group, err2 := strconv.ParseUint(g, 10, 31)
	if err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("--user %q: want UID or UID:GID, as numbers", text)
	}
	return uint32(user), uint32(group), nil
}

// parsed is a flag whose text becomes something else.
type parsed[T any] struct {
	into *T
	with func(string) (T, error)
	text string
}

// parse returns a flag with a default, which may be empty.
func parse[T any](into *T, text string, with func(string) (T, error)) *parsed[T] {
	p := &parsed[T]{into: into, with: with}
	if text != "" {
		p.Set(text)
	}
	return p
}

func (p *parsed[T]) Set(text string) (err error) {
	p.text = text
	*p.into, err = p.with(text)
	return err
}

func (p *parsed[T]) String() string { return p.text }
func (p *parsed[T]) Type() string   { return "string" }

// each is a flag that may be given several times.
type each func(text string) error

func (e each) Set(text string) error { return e(text) }
func (each) String() string          { return "" }
func (each) Type() string            { return "stringArray" }

// list appends what each text becomes.
func list[T any](into *[]T, with func(string) (T, error)) each {
	return func(text string) error {
		value, err := with(text)
		*into = append(*into, value)
		return err
	}
}

// checked leaves a text as it is.
func checked[T any](check func(string) (T, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		_, err := check(text)
		return text, err
	}
}

// parseSeconds reads a time as docker has it: a number of seconds, or a duration with its unit.
func parseSeconds(text string) (time.Duration, error) {
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	return time.ParseDuration(text)
}

// parseLimit reads how long something may take at most.
func parseLimit(text string) (time.Duration, error) {
	d, err := parseSeconds(text)
	if err == nil && d <= 0 {
		err = errors.New("want more than 0")
	}
	return d, err
}
