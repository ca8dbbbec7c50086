import io.undertow.Undertow;
import io.undertow.util.Headers;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;

/** Answers every request with one byte, on one I/O thread; prints its port once it accepts. */
public final class Byte {
    public static void main(String[] arguments) {
        Undertow server = Undertow.builder()
            .addHttpListener(0, "127.0.0.1")
            .setIoThreads(1)
            .setHandler(exchange -> {
                exchange.getResponseHeaders().put(Headers.CONTENT_TYPE, "text/plain");
                exchange.getResponseSender().send(ByteBuffer.wrap(new byte[] {'a'}));
            })
            .build();
        server.start();
        InetSocketAddress address = (InetSocketAddress) server.getListenerInfo().get(0).getAddress();
        System.out.println(address.getPort());
    }
}
