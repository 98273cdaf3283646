import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers questions about names, one a line. "name HEX": the name of a DER subject. "map RULES NAME", both in base 64:
 * the principal's name by mapping rules. An answer is base 64, or "-" where Java refuses.
 */
public class Names {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        try {
            return encoded(words[0].equals("name") ? name(words[1]) : mapped(decoded(words[1]), decoded(words[2])));
        } catch (Exception | StackOverflowError refusal) {
            return "-";
        }
    }

    private static String name(String subject) {
        return new X500Principal(HexFormat.of().parseHex(subject)).getName();
    }

    private static String mapped(String rules, String name) throws Exception {
        return SslPrincipalMapper.fromRules(rules).getName(name);
    }

    private static String decoded(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
