package node

import (
	"net"
	"strings"
)

// defaultInternodePort is where --join HOST without a port goes.
const defaultInternodePort = "9002"

// advertise turns a listen address into one that other nodes reach: an unspecified host becomes the address this
// machine uses towards the member that it joins, else its first global one, else loopback.
func advertise(listen, towards string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return listen
	}
	return net.JoinHostPort(ownAddress(towards), port)
}

func ownAddress(towards string) string {
	if towards != "" {
		if c, err := net.Dial("udp", withPort(towards)); err == nil { // sends nothing: asks the routing table
			defer c.Close()
			if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
				return a.IP.String()
			}
		}
	}
	addrs, _ := net.InterfaceAddrs() // none known is the same as none there
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// withPort adds the default internode port to a host without one.
func withPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), defaultInternodePort)
}
