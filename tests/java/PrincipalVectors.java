import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Writes what Java makes of distinguished names, or Kafka of its mapping rules, as JSON.
 *
 * java -cp kafka-clients-4.3.1.jar tests/java/PrincipalVectors.java WHAT > FILE
 *
 * WHAT is "names" or "mappings"; the files are tests/unit/http/authentication/names_java_17.json
 * (by Java 17, and the same by Java 21), names_java_25.json (by Java 25) and mappings.json.
 */
public class PrincipalVectors {
    static final int UTF8 = 0x0c, PRINTABLE = 0x13, T61 = 0x14, IA5 = 0x16, GENERAL = 0x1b;
    static final int UNIVERSAL = 0x1c, BMP = 0x1e, NUMERIC = 0x12, VISIBLE = 0x1a;
    static final int SEQUENCE = 0x30, SET = 0x31, OID = 0x06;

    static final String CN = "2.5.4.3", C = "2.5.4.6", L = "2.5.4.7", ST = "2.5.4.8", STREET = "2.5.4.9";
    static final String O = "2.5.4.10", OU = "2.5.4.11", EMAIL = "1.2.840.113549.1.9.1";
    static final String DC = "0.9.2342.19200300.100.1.25", UID = "0.9.2342.19200300.100.1.1";

    static final StringBuilder vectors = new StringBuilder();

    static byte[] tlv(int tag, byte[]... parts) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        for (byte[] part : parts) content.writeBytes(part);
        byte[] body = content.toByteArray();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(tag);
        if (body.length < 128) {
            out.write(body.length);
        } else if (body.length < 256) {
            out.write(0x81);
            out.write(body.length);
        } else {
            out.write(0x82);
            out.write(body.length >> 8);
            out.write(body.length & 0xff);
        }
        out.writeBytes(body);
        return out.toByteArray();
    }

    static byte[] oid(String dotted) {
        String[] arcs = dotted.split("\\.");
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        arc(out, Long.parseLong(arcs[0]) * 40 + Long.parseLong(arcs[1]));
        for (int i = 2; i < arcs.length; i++) arc(out, Long.parseLong(arcs[i]));
        return tlv(OID, out.toByteArray());
    }

    static void arc(ByteArrayOutputStream out, long value) {
        int groups = 1;
        while (value >> (7 * groups) != 0) groups++;
        for (int i = groups - 1; i >= 0; i--) {
            out.write((int) (value >> (7 * i) & 0x7f) | (i > 0 ? 0x80 : 0));
        }
    }

    static byte[] text(int tag, String value) {
        return tlv(tag, switch (tag) {
            case BMP -> value.getBytes(StandardCharsets.UTF_16BE);
            case UNIVERSAL -> value.getBytes(java.nio.charset.Charset.forName("UTF-32BE"));
            case T61 -> value.getBytes(StandardCharsets.ISO_8859_1);
            default -> value.getBytes(StandardCharsets.UTF_8);
        });
    }

    static byte[] ava(String type, byte[] value) {
        return tlv(SEQUENCE, oid(type), value);
    }

    static byte[] ava(String type, String value) {
        return ava(type, text(UTF8, value));
    }

    static byte[] rdn(byte[]... avas) {
        return tlv(SET, avas);
    }

    static void name(String about, byte[]... rdns) {
        byte[] der = tlv(SEQUENCE, rdns);
        String result;
        try {
            result = quoted(new X500Principal(der).getName());
        } catch (IllegalArgumentException e) {
            result = "null";
        }
        add("{\"about\": " + quoted(about) + ", \"der\": \"" + HexFormat.of().formatHex(der)
            + "\", \"name\": " + result + "}");
    }

    static void one(String about, String type, byte[] value) {
        name(about, rdn(ava(type, value)));
    }

    static void cn(String about, String value) {
        one(about, CN, text(UTF8, value));
    }

    static void map(String rules, String... distinguishedNames) {
        for (String given : distinguishedNames) {
            String fault = "null", result = "null";
            try {
                SslPrincipalMapper mapper = SslPrincipalMapper.fromRules(rules);
                try {
                    result = quoted(mapper.getName(given));
                } catch (SslPrincipalMapper.NoMatchingRule e) {
                    fault = "\"no rule\"";
                } catch (Exception e) {
                    fault = "\"fails for every name that matches\"";
                }
            } catch (Exception e) {
                fault = "\"rules\"";
            }
            add("{\"rules\": " + quoted(rules) + ", \"name\": " + quoted(given)
                + ", \"result\": " + result + ", \"fault\": " + fault + "}");
        }
    }

    static void add(String vector) {
        vectors.append(vectors.length() == 0 ? "" : ",\n").append(vector);
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 0x20 || c > 0x7e) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }

    static void types() {
        String[] known = {CN, C, L, ST, STREET, O, OU, DC, UID, EMAIL, "2.5.4.4", "2.5.4.5", "2.5.4.12",
            "2.5.4.13", "2.5.4.15", "2.5.4.17", "2.5.4.42", "2.5.4.43", "2.5.4.44", "2.5.4.46", "2.5.4.65",
            "2.5.4.97", "0.9.2342.19200300.100.1.3", "1.3.6.1.4.1.311.60.2.1.3", "1.2.3", "2.999.3",
            "2.5.4.3.1", "0.0", "1.39.1", "2.5.4.2147483647", "2.5.4.99999999999"};
        for (String type : known) one("type " + type, type, text(PRINTABLE, "abc"));
        one("e-mail address as usual", EMAIL, text(IA5, "alice@example.org"));
        one("domain component as usual", DC, text(IA5, "example"));
    }

    static void strings() {
        int[] tags = {UTF8, PRINTABLE, T61, IA5, GENERAL, UNIVERSAL, BMP, NUMERIC, VISIBLE};
        for (int tag : tags) {
            one("string of tag " + tag, CN, text(tag, "abc"));
            one("empty string of tag " + tag, CN, text(tag, ""));
            one("string of tag " + tag + " to escape", CN, text(tag, " a,b "));
            one("string of tag " + tag + " that is not ASCII", CN, text(tag, "\u00fcm\u00e9"));
        }
        one("BMPString beyond Latin", CN, text(BMP, "\u4e2d\u6587"));
        one("BMPString of odd length", CN, tlv(BMP, new byte[] {0, 0x41, 0x42}));
        one("UTF8String that is not UTF-8", CN, tlv(UTF8, new byte[] {0x61, (byte) 0xff, 0x62}));
        one("UTF8String cut in a character", CN, tlv(UTF8, new byte[] {0x61, (byte) 0xe4, (byte) 0xb8}));
        one("UTF8String with an overlong form", CN, tlv(UTF8, new byte[] {(byte) 0xc0, (byte) 0xaf}));
        one("UTF8String with a surrogate", CN, tlv(UTF8, new byte[] {(byte) 0xed, (byte) 0xa0, (byte) 0x80}));
        one("UTF8String beyond Unicode", CN,
            tlv(UTF8, new byte[] {(byte) 0xf4, (byte) 0x90, (byte) 0x80, (byte) 0x80, 0x61}));
        one("an integer", CN, tlv(0x02, new byte[] {5}));
        one("a boolean", CN, tlv(0x01, new byte[] {-1}));
        one("an octet string", CN, tlv(0x04, new byte[] {1, 2}));
        one("a bit string", "2.5.4.45", tlv(0x03, new byte[] {0, 1}));
        one("a null", CN, tlv(0x05));
        one("a time", CN, tlv(0x18, "20260101000000Z".getBytes(StandardCharsets.US_ASCII)));
        one("a sequence", CN, tlv(SEQUENCE, text(UTF8, "a")));
        one("a context tag", CN, tlv(0x80, new byte[] {0x61}));
        one("a long value", CN, text(UTF8, "x".repeat(300)));
        one("a long value without a name", "1.2.3.4", text(UTF8, "x".repeat(200)));
    }

    static void escapes() {
        for (char c : ",=+<>#;\"\\".toCharArray()) {
            cn("only " + c, "" + c);
            cn("begins with " + c, c + "ab");
            cn("has " + c, "a" + c + "b");
            cn("ends with " + c, "ab" + c);
        }
        for (char c : " \r\n\t\u0000\u0001\u007f\u0085\u00a0\u2028\ufeff".toCharArray()) {
            String hex = String.format("U+%04X", (int) c);
            cn("only " + hex, "" + c);
            cn("begins with " + hex, c + "ab");
            cn("has " + hex, "a" + c + "b");
            cn("ends with " + hex, "ab" + c);
            cn("twice on both sides " + hex, "" + c + c + "a" + c + c);
        }
        for (char c : "/'()-.:?*@$%&!~`^_|{}[]".toCharArray()) cn("has " + c, "a" + c + "b");
        cn("a space before an escape", " ,a");
        cn("a space after an escape", "a\\ ");
        cn("an escape of its own", "a\\,b\\2c");
        cn("looks like two", "alice,O=Example");
        cn("looks like a pair", "alice+OU=Ops");
        cn("quotes around it", "\"alice\"");
        cn("looks like hexadecimal", "#0c0161");
        cn("many spaces", "   ");
        cn("spaces within", "a  b");
        cn("beyond the first plane", "a\ud83d\ude80b");
        cn("composed", "\u00e9");
        cn("decomposed", "e\u0301");
        cn("from right to left", "\u202eecila");
        cn("Turkish", "\u0130I\u0131i");
        cn("the wildcard", "*");
        cn("looks like a principal", "User:alice");
        cn("lower and upper", "aLiCe");
    }

    static void structures() {
        name("empty");
        name("as usual", rdn(ava(C, text(PRINTABLE, "DE"))), rdn(ava(O, "Example")), rdn(ava(OU, "Ops")),
            rdn(ava(CN, "alice")));
        name("the other way round", rdn(ava(CN, "alice")), rdn(ava(OU, "Ops")), rdn(ava(O, "Example")));
        name("two at a level", rdn(ava(CN, "alice"), ava(UID, "a1")), rdn(ava(O, "Example")));
        name("two at a level, not in order", rdn(ava(UID, "a1"), ava(CN, "alice")));
        name("three at a level", rdn(ava(OU, "b"), ava(OU, "a"), ava(CN, "c,d")));
        name("two at a level, one without a name", rdn(ava(EMAIL, text(IA5, "a@b.c")), ava(CN, "alice")));
        name("the same twice", rdn(ava(CN, "alice")), rdn(ava(CN, "alice")));
        name("the same twice at a level", rdn(ava(CN, "alice"), ava(CN, "alice")));
        name("domain components", rdn(ava(DC, text(IA5, "org"))), rdn(ava(DC, text(IA5, "example"))),
            rdn(ava(UID, "alice")));
        name("empty values", rdn(ava(O, "")), rdn(ava(CN, "")));
        name("everything", rdn(ava(C, text(PRINTABLE, "DE"))), rdn(ava(ST, "Bayern")), rdn(ava(L, "M\u00fcnchen")),
            rdn(ava(STREET, "Am Platz 1")), rdn(ava(O, "A, B & C")), rdn(ava(OU, "x")), rdn(ava(CN, "y")),
            rdn(ava(EMAIL, text(IA5, "y@example.org"))));
        byte[][] many = new byte[60][];
        for (int i = 0; i < many.length; i++) many[i] = rdn(ava(OU, "unit " + i));
        name("sixty levels", many);
        name("an empty level", rdn());
    }

    static void atRandom(Random random) {
        String alphabet = "abzAZ09 ,=+<>#;\"\\\r\n\u0000\u00e9\u4e2d/'";
        String[] types = {CN, C, L, ST, STREET, O, OU, DC, UID, EMAIL, "2.5.4.5", "1.2.3.4"};
        int[] tags = {UTF8, UTF8, UTF8, PRINTABLE, IA5, BMP, T61, GENERAL};
        for (int i = 0; i < 150; i++) {
            byte[][] rdns = new byte[random.nextInt(5)][];
            for (int j = 0; j < rdns.length; j++) {
                List<byte[]> avas = new ArrayList<>();
                for (int k = 0; k <= random.nextInt(4) / 2; k++) {
                    StringBuilder value = new StringBuilder();
                    for (int n = random.nextInt(7); n > 0; n--) {
                        value.append(alphabet.charAt(random.nextInt(alphabet.length())));
                    }
                    avas.add(ava(types[random.nextInt(types.length)],
                        text(tags[random.nextInt(tags.length)], value.toString())));
                }
                avas.sort(Comparator.comparing(HexFormat.of()::formatHex));
                rdns[j] = rdn(avas.toArray(new byte[0][]));
            }
            name("at random " + i, rdns);
        }
    }

    static void rules() {
        String alice = "CN=alice,OU=Ops,O=Example,C=DE", bob = "CN=Bob B.,UID=b1", email = "O=X,CN=c\\,d";
        String[] all = {alice, bob, email, "", "CN=\u00c4\u00df\u03a3,O=\u0130"};
        map("DEFAULT", all);
        map("RULE:^CN=(.*?),.*$/$1/", all);
        map("RULE:^CN=(.*?),.*$/$1/L", all);
        map("RULE:^CN=(.*?),.*$/$1/U", all);
        map("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT", all);
        map("RULE:^CN=(.*),OU=Ops.*$/$1/,RULE:^CN=(.*),UID=(.*)$/$2/U,DEFAULT", all);
        map(" RULE:^CN=(.*),OU=Ops.*$/$1/ , RULE:^CN=(.*),UID=(.*)$/$2/ ,  DEFAULT ", all);
        map("DEFAULT,RULE:^CN=(.*?),.*$/$1/", all);
        map("RULE:.*/x/", all);
        map("RULE:.+/x/", all);
        map("RULE:^.*$/x/", all);
        map("RULE:CN=(\\w+),.*/$1/", all);
        map("RULE:^CN=([^,]+),.*$/$1/", all);
        map("RULE:^cn=(.*?),.*$/$1/,RULE:(?i)^cn=(.*?),.*$/i:$1/", all);
        map("RULE:^(CN|O)=(.*)$/$1-$2/", all);
        map("RULE:^(?:CN|O)=(.*)$/$1/", all);
        map("RULE:^CN=(.*?),(UID=)?.*$/[$2]/", all);
        map("RULE:^.*UID=([a-z]\\d)$/$1/", all);
        map("RULE:^CN=(.*?)(?=,).*$/$1/", all);
        map("RULE:^CN=((?!alice).*)$/not alice $1/", all);
        map("RULE:^O=X,CN=c\\\\,(.)$/$1/", all);
        map("RULE:^CN=(.*?),.*$/a\\/b\\\\$1/", all);
        map("RULE:^CN=(.*?),.*$/\\$1/", all);
        map("RULE:^CN=(.*?),.*$/$0/", all);
        map("RULE:^CN=(.*?),.*$/$01/", all);
        map("RULE:^CN=(.*?),.*$/$10/", all);
        map("RULE:^CN=(.*?),.*$/$2/", all);
        map("RULE:^CN=(.*?),.*$/$1@$4/", all);
        map("RULE:^CN=(.*?),.*$/$4$5/", all);
        map("RULE:^CN=(.*?),.*$/$99/", all);
        map("RULE:^CN=(.*?),.*$/$9x$1/", all);
        map("RULE:^CN=.*$/$1/", all);
        map("RULE:^CN=(.*?),.*$/$/", all);
        map("RULE:^CN=(.*?),.*$/$x/", all);
        map("RULE:^CN=(.*?),.*$/${1}/", all);
        map("RULE:^CN=(.*?),.*$/$99999999999/", all);
        map("RULE:^CN=(?<who>.*?),.*$/${who}/", all);
        map("RULE:^CN=(.*?),.*$//", all);
        map("RULE://x/", all);
        map("RULE:()/x/", all);
        map("RULE:^CN=(.*?),.*$/$1 /L", all);
        map("RULE:^CN=([a-z]*+),.*$/$1/", all);
        map("RULE:^CN=([a-z]{5}),.*$/$1/", all);
        map("RULE:^CN=([a-z]{2,}?)(.{0,3}),.*$/$1-$2/", all);
        map("RULE:^CN=[a-z&&[^x]]+,.*$/x/", all);
        map("RULE:^CN=\\p{L}+,.*$/x/", all);
        map("RULE:(a|b|,|.)/x/", "a", "ab", alice);
        map("RULE:(.*?)/<$1>/", "a", "ab", "");
        map("RULE:(a*)(b?)/<$1|$2>/", "a", "aab", "b", "", "c");
        map("RULE:(.)(.*)/$2$1/", "abc", "a");
        map("", all);
        map(",", all);
        map(",DEFAULT,", alice);
        map("DEFAULT,,DEFAULT", alice);
        for (String wrong : new String[] {"default", "DEFAULT/L", "DEFAULTX", "RULE", "RULE:", "RULE:x", "RULE:x/",
            "RULE:x/y", "RULE:x/y/Z", "RULE:x/y/LU", "RULE:x/y/l", "RULE:x/y/L/g", "rule:x/y/", "RULE:x/y/ L",
            "RULE:x/y/L,foo", "foo,DEFAULT", "RULE:(x/y/", "RULE:x)/y/", "RULE:[x/y/", "RULE:*/y/", "RULE:x**/y/",
            "RULE:x{/y/", "RULE:x{,2}/y/", "RULE:\\/y/", "RULE:x/y\\/", "RULE:x/y\\\\/", "RULE:x/y/,RULE:z/",
            "DEFAULT DEFAULT", "DEFAULT;DEFAULT", "L", "/", "RULE:x/y/LRULE:x/y/", "RULE:\\y/y/", "RULE:(?z)x/y/",
            "RULE:x{3,2}/y/", "RULE:[b-a]/y/", "RULE:(?<=x)/y/", "RULE:\\2(x)/y/"}) {
            map(wrong, "x", alice);
        }
    }

    public static void main(String[] arguments) {
        if (arguments[0].equals("names")) {
            types();
            strings();
            escapes();
            structures();
            atRandom(new Random(20261121));
        } else {
            rules();
        }
        System.out.println("[\n" + vectors + "\n]");
    }
}
