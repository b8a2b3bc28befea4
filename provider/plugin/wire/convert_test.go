// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// fill sets every field of a struct to something that is not zero, so that a
// conversion that forgets one does not go unnoticed.
func fill(t *testing.T, v reflect.Value, random *rand.Rand) {
	t.Helper()
	switch target := v.Addr().Interface().(type) {
	case *netip.Addr:
		*target = randomAddr(random)
		return
	case *time.Time:
		*target = time.Unix(random.Int64N(1<<33), 1+random.Int64N(1e9-1)).UTC()
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), random)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+random.IntN(3), 3))
		for i := range v.Len() {
			fill(t, v.Index(i), random)
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"key": fmt.Sprint(random.Uint64()), "": "empty", "grün": ""}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), random)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d 🚀", random.Uint64()))
	case reflect.Int64:
		v.SetInt(1 + random.Int64())
	case reflect.Float64:
		v.SetFloat(1 + random.Float64())
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("the test cannot fill a %s: teach it", v.Type())
	}
}

func randomAddr(random *rand.Rand) netip.Addr {
	for {
		if ip := anyAddr(random); provider.CheckAddress(ip) == nil {
			return ip
		}
	}
}

func anyAddr(random *rand.Rand) netip.Addr {
	var bytes [16]byte
	for i := range bytes {
		bytes[i] = byte(1 + random.IntN(255))
	}
	switch random.IntN(4) {
	case 0:
		return netip.AddrFrom16(bytes)
	case 1:
		return netip.AddrFrom16(bytes).WithZone("eth0")
	case 2: // IPv4 in IPv6 stays that
		return netip.AddrFrom16(netip.AddrFrom4([4]byte(bytes[:4])).As16())
	}
	return netip.AddrFrom4([4]byte(bytes[:4]))
}

// testRoundTrip sends values through there and back, as bytes in between.
func testRoundTrip[T any, M proto.Message](t *testing.T, there func(T) M, back func(M) T) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var want, zero T
		fill(t, reflect.ValueOf(&want).Elem(), random)
		for _, value := range []T{want, zero} {
			message := there(value)
			data, err := proto.Marshal(message)
			if err != nil {
				t.Fatal(err)
			}
			received := message.ProtoReflect().New().Interface().(M)
			if err := proto.Unmarshal(data, received); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(value, back(received), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Fatalf("seed %d: sent and received differ:\n%s", seed, diff)
			}
		}
	}
}

func TestRoundTrips(t *testing.T) {
	t.Run("Instance", func(t *testing.T) {
		testRoundTrip(t,
			func(i provider.Instance) *pluginpb.Instance { return instanceToWire(&i) },
			func(m *pluginpb.Instance) provider.Instance {
				i, err := instanceFromWire(m)
				if err != nil {
					t.Fatal(err)
				}
				return *i
			})
	})
	t.Run("InstanceTypeSpec", func(t *testing.T) { testRoundTrip(t, specToWire, specFromWire) })
	t.Run("InstanceType", func(t *testing.T) { testRoundTrip(t, typeToWire, typeFromWire) })
	t.Run("Field", func(t *testing.T) { testRoundTrip(t, fieldToWire, fieldFromWire) })
}

func TestWrongAddressesLeaveTheID(t *testing.T) {
	i, err := instanceFromWire(&pluginpb.Instance{Id: "i-1", Ips: []string{"invalid IP", "192.0.2.1"}})
	if err == nil || i == nil || i.ID != "i-1" || len(i.IPs) != 1 {
		t.Errorf("%v, %v", i, err)
	}
	if i, err := instanceFromWire(nil); i != nil || err != nil {
		t.Errorf("nil: %v, %v", i, err)
	}
	if instanceToWire(nil) != nil {
		t.Error("nil becomes a message")
	}
}

func TestSchemaFromWire(t *testing.T) {
	good := &pluginpb.Field{Name: "a", Flag: "a", Env: "A", Type: "int", Default: "1"}
	for name, fields := range map[string][]*pluginpb.Field{
		"no name":             {{Flag: "a"}},
		"neither":             {{Name: "a"}},
		"flag with dash":      {{Name: "a", Flag: "-a"}},
		"flag with equals":    {{Name: "a", Flag: "a=b"}},
		"variable with space": {{Name: "a", Env: "A B"}},
		"wrong default":       {{Name: "a", Flag: "a", Type: "int", Default: "x"}},
		"name twice":          {good, {Name: "a", Flag: "b"}},
		"flag twice":          {good, {Name: "b", Flag: "a"}},
		"variable twice":      {good, {Name: "b", Env: "A"}},
	} {
		if schema, err := schemaFromWire(&pluginpb.GetInfoResponse{Name: "x", Schema: fields}); err == nil {
			t.Errorf("%s: no error, %v", name, schema)
		}
	}
	schema, err := schemaFromWire(&pluginpb.GetInfoResponse{Name: "x", Schema: []*pluginpb.Field{good, {Name: "b", Env: "B"}, {Name: "c", Env: "C"}, {Name: "d", Flag: "d"}, {Name: "e", Flag: "e"}}})
	if err != nil || schema.Provider != "x" || len(schema.Fields) != 5 || schema.Fields[0].Type != config.Int {
		t.Errorf("%v, %v", schema, err)
	}
}

// TestPluginsAreNotBelieved: an address of this machine would have the node's own ports
// taken for a VM's, and an endless id goes to disks, tags and Events.
func TestPluginsAreNotBelieved(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "fe80::1", "x"} {
		i, err := instanceFromWire(&pluginpb.Instance{Id: "i-1", Ips: []string{"198.18.0.2", address}})
		if err == nil || i == nil || i.ID != "i-1" || len(i.IPs) != 1 {
			t.Errorf("%s: %+v, %v; want an error, and the id, so that it can be deleted", address, i, err)
		}
	}
	for what, id := range map[string]string{"an endless": strings.Repeat("i", 8<<20), "a broken": "i\n1"} {
		if i, err := instanceFromWire(&pluginpb.Instance{Id: id}); i != nil || err == nil || len(err.Error()) > 200 {
			t.Errorf("%s id: %v, %.300v", what, i != nil, err)
		}
	}
	if i, err := instanceFromWire(&pluginpb.Instance{Id: "i-1", Name: strings.Repeat("n", 8<<20)}); err == nil || i == nil || i.Name != "" {
		t.Errorf("an endless name: %.300v", err)
	}
}
